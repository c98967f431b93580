/**
 * Makes the registry hold what one source has found. A worker that is found is registered, and checked before it gets requests like any
 * other. One that is gone or not ready leaves rotation at once, keeps its cluster for a while in case it comes back, and is removed when
 * its last request has ended. Workers of others are never touched; where one has the same name or address, it stays and that is said.
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
import { Places } from './worker-index.ts'

export type Change = 'added' | 'drained' | 'undrained' | 'removed'

export interface ReconcilerOptions {
  readonly source: SourceName
  readonly registry: Pick<Registry, 'add' | 'remove' | 'drain' | 'undrain' | 'retire' | 'views' | 'subscribe'>
  readonly removeAfterMs: number
  readonly timers: Timers
  readonly memory?: SourceMemory
  changed(change: Change, id: string): void
  /** Workers that cannot be registered because of others, each as a sentence; after every look. */
  conflicts(notes: readonly string[]): void
}

interface Mine {
  readonly found: DiscoveredWorker
  away: boolean
  /** Away for so long that the registry may remove it. */
  retired: boolean
  cancel?: () => void
}

export class Reconciler {
  readonly #options: ReconcilerOptions
  readonly #unsubscribe: () => void
  readonly #mine = new Map<string, Mine>()
  /** Taken away by hand: not registered again before the source has dropped it or given it another address. */
  readonly #dismissed: Map<string, string>
  readonly #places: Places
  #last: readonly DiscoveredWorker[] = []
  #busy = false
  #stopped = false

  constructor(options: ReconcilerOptions) {
    this.#options = options
    this.#dismissed = options.memory?.dismissed ?? new Map()
    this.#places = new Places(options.memory?.places)
    this.#unsubscribe = options.registry.subscribe(event => this.#heard(event))
  }

  /** Registered, those that are away included. */
  get size(): number {
    return this.#mine.size
  }

  /** `found`: each name and address once. */
  apply(found: readonly DiscoveredWorker[]): void {
    this.#last = found
    this.#busy = true
    try {
      this.#options.conflicts(this.#applied(found))
    } finally {
      this.#busy = false
    }
  }

  /** Workers stay as they are. */
  stop(): void {
    this.#stopped = true
    this.#unsubscribe()
    for (const { cancel } of this.#mine.values()) cancel?.()
  }

  #applied(found: readonly DiscoveredWorker[]): string[] {
    const listed = new Map(found.map(one => [one.id, one]))
    for (const [id, place] of this.#dismissed) {
      const one = listed.get(id)
      if (one === undefined || placeText(one) !== place) this.#dismissed.delete(id)
    }
    this.#keepPlaces(found)
    for (const [id, mine] of this.#mine) {
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
      if (!one.ready || this.#mine.has(one.id) || this.#dismissed.has(one.id)) continue
      const conflict = this.#conflictOf(one, byId.get(one.id), byUrl)
      if (conflict === 'theirs') continue
      if (conflict !== undefined) conflicts.push(conflict)
      else if (this.#mine.size + fresh.length < MAX_DISCOVERED) fresh.push(one)
      else conflicts.push(`${one.id} is left out: there are ${MAX_DISCOVERED} workers already`)
    }
    for (const one of highestFirst(fresh, one => this.#placeOf(one) ?? -1)) {
      const { ready: _, ...worker } = one
      const spec: WorkerSpec = { ...worker, source: this.#options.source }
      const outcome = this.#options.registry.add(spec, this.#placeOf(one))
      if (outcome === 'added') this.#mine.set(one.id, { found: one, away: false, retired: false })
      if (outcome === 'added') this.#options.changed('added', one.id)
      else conflicts.push(`${one.id} is left out: another worker has the cluster ${one.cluster}`)
    }
    return conflicts
  }

  /** Why it cannot be registered; `theirs` when somebody else has registered this very worker. */
  #conflictOf(
    one: DiscoveredWorker,
    named: WorkerView | undefined,
    byUrl: Map<string, WorkerView[]>,
  ): string | undefined {
    if (named !== undefined) {
      if (placeText(named.spec) === placeText(one) && named.spec.role === one.role) return 'theirs'
      return `${one.id} is left out: another worker has this name (${named.spec.source ?? 'config'})`
    }
    const there = byUrl.get(one.url) ?? []
    const same = there.filter(({ spec }) => isSamePlace(spec, one))
    // Addresses of pods that have ended are given to others, and a server that was one worker may be one for each of its ranks now.
    const other = same.find(({ spec }) => this.#mine.get(spec.id)?.away !== true)
    if (other !== undefined)
      return `${one.id} is left out: ${other.spec.id} has its address, ${placeText(other.spec)} (${other.spec.source ?? 'config'})`
    for (const { spec } of same) this.#drop(spec.id)
    byUrl.set(
      one.url,
      there.filter(view => !same.includes(view)),
    )
    return undefined
  }

  #placeOf({ id, cluster, role }: DiscoveredWorker): number | undefined {
    return role === 'decode' && cluster === undefined ? this.#places.of(id) : undefined
  }

  #keepPlaces(found: readonly DiscoveredWorker[]): void {
    const registered = new Map<string, number>()
    const others = new Set<number>(found.flatMap(({ cluster }) => cluster ?? []))
    for (const { spec, index } of this.#views()) {
      if (spec.role !== 'decode') continue
      if (this.#mine.has(spec.id)) registered.set(spec.id, index)
      else others.add(index)
    }
    const named = found
      .filter(({ role, cluster }) => role === 'decode' && cluster === undefined)
      .map(({ id }) => id)
    this.#places.update([...named, ...registered.keys()], registered, others)
  }

  #views(): WorkerView[] {
    return this.#options.registry.views(performance.now()).filter(({ leaving }) => !leaving)
  }

  #away(id: string, mine: Mine): void {
    if (mine.away) return
    mine.away = true
    this.#options.registry.drain(id, 'discovery')
    this.#options.changed('drained', id)
    mine.cancel = this.#options.timers.after(this.#options.removeAfterMs, () => {
      mine.retired = true
      this.#options.registry.retire(id)
    })
  }

  #back(id: string, mine: Mine): void {
    if (!mine.away) return
    mine.cancel?.()
    mine.away = mine.retired = false
    this.#options.registry.undrain(id, 'discovery')
    this.#options.changed('undrained', id)
  }

  /** At once: at its address is another server, or none. What still runs there may end. */
  #drop(id: string): void {
    this.#mine.get(id)?.cancel?.()
    this.#mine.delete(id)
    this.#options.registry.remove(id)
    this.#options.changed('removed', id)
  }

  #heard({ kind, worker }: RegistryEvent): void {
    if (kind !== 'removed') return
    const { id } = worker
    const mine = this.#mine.get(id)
    if (mine !== undefined) {
      mine.cancel?.()
      this.#mine.delete(id)
      if (mine.retired) this.#options.changed('removed', id)
      else this.#dismissed.set(id, placeText(worker))
    } else if (!this.#busy) {
      // Somebody's worker has gone whose name or address may be that of one that was left out.
      queueMicrotask(() => this.#stopped || this.apply(this.#last))
    }
  }
}

const isSame = (a: DiscoveredWorker, b: DiscoveredWorker) =>
  placeText(a) === placeText(b) && a.role === b.role && a.cluster === b.cluster

/** The routing table has room for the highest index there is: it should grow once, and not with every worker. */
function highestFirst(
  found: readonly DiscoveredWorker[],
  placeOf: (one: DiscoveredWorker) => number,
): DiscoveredWorker[] {
  const highest = found.reduce<DiscoveredWorker | undefined>(
    (most, one) => (most === undefined || placeOf(one) > placeOf(most) ? one : most),
    undefined,
  )
  return highest === undefined ? [] : [highest, ...found.filter(one => one !== highest)]
}
