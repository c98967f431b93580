/**
 * Shares the sums of `union` between replicas: publishes rows of this gateway's requests, and adds the
 * others' rows to the policy's sums. What was added is kept per worker, so that it can be told from own
 * requests and subtracted exactly.
 */
import type { Registry } from '../../../cluster/registry.ts'
import type { DecodePolicy, SharedSums } from '../../../policy/decode-policy.ts'
import { type RowEntry, type WorkerKey, workerKey } from './messages.ts'
import { difference, packRow, quantise } from './rows.ts'

type RowsOf = (cells: number) => Iterable<readonly [WorkerKey, Uint8Array]>

export class UnionShare {
  readonly #registry: Pick<Registry, 'views'>
  readonly #rowsOf: RowsOf
  #sums: SharedSums | undefined
  #indexes = new Map<WorkerKey, number>()
  /** The others' part of the sums, by index. */
  #foreign = new Map<number, Int32Array>()
  /** `changes` of the last published row, by index. */
  #published = new Map<number, number>()

  /** `rowsOf`: all rows of the other replicas. */
  constructor(registry: Pick<Registry, 'views'>, rowsOf: RowsOf) {
    this.#registry = registry
    this.#rowsOf = rowsOf
  }

  /** 0 if the policy has nothing to share. */
  get cells(): number {
    return this.#sums?.cells ?? 0
  }

  /** A new policy does not have the others' rows yet. */
  policyChanged(policy: DecodePolicy): void {
    if (policy.sums === this.#sums) return
    this.#sums = policy.sums
    this.#foreign = new Map()
    this.#published = new Map()
    this.#readWorkers()
  }

  /** An index may belong to another worker now. */
  workersChanged(): void {
    for (const [index, sums] of this.#foreign)
      this.#sums!.add(
        index,
        sums.map(value => -value),
      )
    this.#foreign = new Map()
    this.#published = new Map()
    this.#readWorkers()
  }

  rowChanged(key: WorkerKey, before: Uint8Array | undefined, after: Uint8Array | undefined): void {
    const [sums, index] = [this.#sums, this.#indexes.get(key)]
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

  /** Own rows that have changed since the last call, or with `whole` all that are not zero. */
  rows(whole: boolean): RowEntry[] {
    const sums = this.#sums
    if (sums === undefined) return []
    const rows: RowEntry[] = []
    for (const [key, index] of this.#indexes) {
      if (index >= sums.workers) continue
      const changes = sums.changes(index)
      if (!whole && this.#published.get(index) === changes) continue
      this.#published.set(index, changes)
      const row = quantise(this.#own(sums, index))
      if (!whole || row.some(value => value > 0)) rows.push({ key, packed: packRow(row) })
    }
    return rows
  }

  #own(sums: SharedSums, index: number): Int32Array {
    const own = sums.of(index)
    const foreign = this.#foreign.get(index)
    if (foreign !== undefined) for (let c = 0; c < own.length; c++) own[c]! -= foreign[c]!
    return own
  }

  #readWorkers(): void {
    const decodes = this.#registry
      .views(performance.now())
      .filter(({ spec, leaving }) => spec.role === 'decode' && !leaving)
    this.#indexes = new Map(decodes.map(({ spec, index }) => [workerKey('decode', spec.id), index]))
    if (this.#sums !== undefined)
      for (const [key, row] of this.#rowsOf(this.#sums.cells)) this.rowChanged(key, undefined, row)
  }
}
