/**
 * Sums of `union` shared between replicas: rows of this gateway's own requests go out, rows of the others' are added to the policy's sums.
 * What was added is remembered by worker, so that own and foreign can be told apart and every addition can be taken back to the bit.
 */
import type { Registry } from '../../../cluster/registry.ts'
import type { DecodePolicy, SharedSums } from '../../../policy/decode-policy.ts'
import { type RowEntry, type WorkerKey, workerKey } from './messages.ts'
import { difference, packed, quantised } from './rows.ts'

type RowsOf = (cells: number) => Iterable<readonly [WorkerKey, Uint8Array]>

export class UnionShare {
  readonly #registry: Pick<Registry, 'views'>
  readonly #rowsOf: RowsOf
  #sums: SharedSums | undefined
  #places = new Map<WorkerKey, number>()
  /** What the others have in the sums, by index. */
  #foreign = new Map<number, Int32Array>()
  /** By index: `changes` when its row was last told. */
  #told = new Map<number, number>()

  /** `rowsOf`: all rows of the others. */
  constructor(registry: Pick<Registry, 'views'>, rowsOf: RowsOf) {
    this.#registry = registry
    this.#rowsOf = rowsOf
  }

  /** 0 where the policy has nothing to share. */
  get cells(): number {
    return this.#sums?.cells ?? 0
  }

  /** Another policy is in force: it knows nothing of the others yet. */
  policyChanged(policy: DecodePolicy): void {
    if (policy.sums === this.#sums) return
    this.#sums = policy.sums
    this.#foreign = new Map()
    this.#told = new Map()
    this.#seat()
  }

  /** Indexes may be other workers' now. */
  workersChanged(): void {
    for (const [index, sums] of this.#foreign)
      this.#sums!.add(
        index,
        sums.map(value => -value),
      )
    this.#foreign = new Map()
    this.#told = new Map()
    this.#seat()
  }

  rowChanged(key: WorkerKey, before: Uint8Array | undefined, after: Uint8Array | undefined): void {
    const [sums, index] = [this.#sums, this.#places.get(key)]
    if (
      sums === undefined ||
      index === undefined ||
      index >= sums.workers ||
      (after ?? before)?.length !== sums.cells
    )
      return
    const delta = difference(before, after, sums.cells)
    sums.add(index, delta)
    const foreign = this.#foreign.get(index)
    if (foreign === undefined) this.#foreign.set(index, delta)
    else for (let c = 0; c < delta.length; c++) foreign[c]! += delta[c]!
  }

  /** Rows of own requests that were not told yet, or all that are not zeros. They count as told. */
  rows(whole: boolean): RowEntry[] {
    const sums = this.#sums
    if (sums === undefined) return []
    const rows: RowEntry[] = []
    for (const [key, index] of this.#places) {
      if (index >= sums.workers) continue
      const changes = sums.changes(index)
      if (!whole && this.#told.get(index) === changes) continue
      this.#told.set(index, changes)
      const row = quantised(this.#own(sums, index))
      if (!whole || row.some(value => value > 0)) rows.push({ key, packed: packed(row) })
    }
    return rows
  }

  #own(sums: SharedSums, index: number): Int32Array {
    const own = sums.of(index)
    const foreign = this.#foreign.get(index)
    if (foreign !== undefined) for (let c = 0; c < own.length; c++) own[c]! -= foreign[c]!
    return own
  }

  #seat(): void {
    const decodes = this.#registry
      .views(performance.now())
      .filter(({ spec, leaving }) => spec.role === 'decode' && !leaving)
    this.#places = new Map(decodes.map(({ spec, index }) => [workerKey('decode', spec.id), index]))
    if (this.#sums !== undefined)
      for (const [key, row] of this.#rowsOf(this.#sums.cells)) this.rowChanged(key, undefined, row)
  }
}
