/**
 * Reconciles the registry with the workers of one discovery source. A new worker is registered, and gets
 * requests after its first good health check. A worker that disappears or is not ready is drained at once,
 * keeps its cluster for a while in case it returns, and is removed when its last request has ended. Workers
 * from other sources are never changed; on a conflict of id or address they stay, and the conflict is
 * reported.
 */
import type { Timers } from '../../../cluster/health.ts'
import type { Registry, RegistryEvent, WorkerView } from '../../../cluster/registry.ts'
import { isSamePlace, placeText, type WorkerSpec } from '../../../cluster/worker.ts'
import {
  type DiscoveredWorker,
  MAX_DISCOVERED,
  sortedById,
  type SourceMemory,
  type SourceName,
} from '../../discovery/source.ts'
import { WorkerIndexes } from './worker-index.ts'

export type Change = 'added' | 'drained' | 'undrained' | 'removed'

export interface ReconcilerOptions {
  readonly source: SourceName
  readonly registry: Pick<Registry, 'add' | 'remove' | 'drain' | 'undrain' | 'retire' | 'views' | 'subscribe'>
  readonly removeAfterMs: number
  readonly timers: Timers
  readonly memory?: SourceMemory
  changed(change: Change, id: string): void
  /** Called after every lookup: one sentence per worker that cannot be registered. */
  conflicts(notes: readonly string[]): void
}

/** A worker that this source has registered. */
interface Registered {
  readonly found: DiscoveredWorker
  away: boolean
  /** Away for longer than `removeAfterMs`: the registry removes it when it is idle. */
  retired: boolean
  cancel?: () => void
}

type Conflict =
  | { readonly kind: 'none' | 'already_registered' }
  | { readonly kind: 'conflict'; readonly why: string }

export class Reconciler {
  readonly #options: ReconcilerOptions
  readonly #unsubscribe: () => void
  readonly #registered = new Map<string, Registered>()
  /** Removed by an operator: not registered again until the source drops it or reports another address. */
  readonly #dismissed: Map<string, string>
  readonly #indexes: WorkerIndexes
  #last: readonly DiscoveredWorker[] = []
  #busy = false
  #stopped = false

  constructor(options: ReconcilerOptions) {
    this.#options = options
    this.#dismissed = options.memory?.dismissed ?? new Map()
    this.#indexes = new WorkerIndexes(options.memory?.places)
    this.#unsubscribe = options.registry.subscribe(event => this.#onRegistryEvent(event))
  }

  /** Number of registered workers, including drained ones. */
  get size(): number {
    return this.#registered.size
  }

  /** `found` must not contain duplicates. */
  apply(found: readonly DiscoveredWorker[]): void {
    this.#last = found
    this.#busy = true
    try {
      this.#options.conflicts(this.#applied(found))
    } finally {
      this.#busy = false
    }
  }

  /** Leaves workers as they are. */
  stop(): void {
    this.#stopped = true
    this.#unsubscribe()
    for (const { cancel } of this.#registered.values()) cancel?.()
  }

  #applied(found: readonly DiscoveredWorker[]): string[] {
    const listed = new Map(found.map(one => [one.id, one]))
    for (const [id, address] of this.#dismissed) {
      const one = listed.get(id)
      if (one === undefined || placeText(one) !== address) this.#dismissed.delete(id)
    }
    this.#updateIndexes(found)
    for (const [id, mine] of this.#registered) {
      const one = listed.get(id)
      if (one !== undefined && !isSame(one, mine.found)) this.#drop(id)
      else if (one?.ready === true) this.#back(id, mine)
      else this.#away(id, mine)
    }
    const views = this.#views()
    const byId = new Map(views.map(view => [view.spec.id, view]))
    const byUrl = new Map<string, WorkerView[]>()
    for (const view of views) byUrl.set(view.spec.url, [...(byUrl.get(view.spec.url) ?? []), view])
    const conflicts: string[] = []
    const fresh: DiscoveredWorker[] = []
    for (const one of sortedById(found)) {
      if (!one.ready || this.#registered.has(one.id) || this.#dismissed.has(one.id)) continue
      const conflict = this.#conflictOf(one, byId.get(one.id), byUrl)
      if (conflict.kind === 'already_registered') continue
      if (conflict.kind === 'conflict') conflicts.push(conflict.why)
      else if (this.#registered.size + fresh.length < MAX_DISCOVERED) fresh.push(one)
      else conflicts.push(`${one.id} skipped: limit of ${MAX_DISCOVERED} workers reached`)
    }
    for (const one of highestFirst(fresh, one => this.#indexOf(one) ?? -1)) {
      const { ready: _, ...worker } = one
      const spec: WorkerSpec = { ...worker, source: this.#options.source }
      const outcome = this.#options.registry.add(spec, this.#indexOf(one))
      if (outcome === 'added') this.#registered.set(one.id, { found: one, away: false, retired: false })
      if (outcome === 'added') this.#options.changed('added', one.id)
      else conflicts.push(`${one.id} skipped: another worker has cluster ${one.cluster}`)
    }
    return conflicts
  }

  /**
   * Whether a worker can be registered. `already_registered`: another source has registered the same worker.
   */
  #conflictOf(
    one: DiscoveredWorker,
    named: WorkerView | undefined,
    byUrl: Map<string, WorkerView[]>,
  ): Conflict {
    if (named !== undefined) {
      if (placeText(named.spec) === placeText(one) && named.spec.role === one.role)
        return { kind: 'already_registered' }
      const why = `${one.id} skipped: another worker has this id (${named.spec.source ?? 'config'})`
      return { kind: 'conflict', why }
    }
    const there = byUrl.get(one.url) ?? []
    const same = there.filter(({ spec }) => isSamePlace(spec, one))
    // The address of a terminated pod may be reused, and a server that was one worker may now be one per
    // rank.
    const other = same.find(({ spec }) => this.#registered.get(spec.id)?.away !== true)
    if (other !== undefined) {
      const source = other.spec.source ?? 'config'
      const why = `${one.id} skipped: ${other.spec.id} has its address, ${placeText(other.spec)} (${source})`
      return { kind: 'conflict', why }
    }
    for (const { spec } of same) this.#drop(spec.id)
    byUrl.set(
      one.url,
      there.filter(view => !same.includes(view)),
    )
    return { kind: 'none' }
  }

  #indexOf({ id, cluster, role }: DiscoveredWorker): number | undefined {
    return role === 'decode' && cluster === undefined ? this.#indexes.indexOf(id) : undefined
  }

  #updateIndexes(found: readonly DiscoveredWorker[]): void {
    const registered = new Map<string, number>()
    const taken = new Set<number>(found.flatMap(({ cluster }) => cluster ?? []))
    for (const { spec, index } of this.#views()) {
      if (spec.role !== 'decode') continue
      if (this.#registered.has(spec.id)) registered.set(spec.id, index)
      else taken.add(index)
    }
    const listed = found
      .filter(({ role, cluster }) => role === 'decode' && cluster === undefined)
      .map(({ id }) => id)
    this.#indexes.update([...listed, ...registered.keys()], registered, taken)
  }

  #views(): WorkerView[] {
    return this.#options.registry.views(performance.now()).filter(({ leaving }) => !leaving)
  }

  #away(id: string, mine: Registered): void {
    if (mine.away) return
    mine.away = true
    this.#options.registry.drain(id, 'discovery')
    this.#options.changed('drained', id)
    mine.cancel = this.#options.timers.after(this.#options.removeAfterMs, () => {
      mine.retired = true
      this.#options.registry.retire(id)
    })
  }

  #back(id: string, mine: Registered): void {
    if (!mine.away) return
    mine.cancel?.()
    mine.away = mine.retired = false
    this.#options.registry.undrain(id, 'discovery')
    this.#options.changed('undrained', id)
  }

  /** Removes at once: its address has another server, or none. Running requests may finish. */
  #drop(id: string): void {
    this.#registered.get(id)?.cancel?.()
    this.#registered.delete(id)
    this.#options.registry.remove(id)
    this.#options.changed('removed', id)
  }

  #onRegistryEvent({ kind, worker }: RegistryEvent): void {
    if (kind !== 'removed') return
    const { id } = worker
    const mine = this.#registered.get(id)
    if (mine !== undefined) {
      mine.cancel?.()
      this.#registered.delete(id)
      if (mine.retired) this.#options.changed('removed', id)
      else this.#dismissed.set(id, placeText(worker))
    } else if (!this.#busy) {
      // A worker from another source is gone; its id or address may have blocked one of this source.
      queueMicrotask(() => this.#stopped || this.apply(this.#last))
    }
  }
}

const isSame = (a: DiscoveredWorker, b: DiscoveredWorker) =>
  placeText(a) === placeText(b) && a.role === b.role && a.cluster === b.cluster

/** The routing table grows to the highest index: adding that worker first makes it grow only once. */
function highestFirst(
  found: readonly DiscoveredWorker[],
  indexOf: (one: DiscoveredWorker) => number,
): DiscoveredWorker[] {
  const highest = found.reduce<DiscoveredWorker | undefined>(
    (highest, one) => (highest === undefined || indexOf(one) > indexOf(highest) ? one : highest),
    undefined,
  )
  return highest === undefined ? [] : [highest, ...found.filter(one => one !== highest)]
}
