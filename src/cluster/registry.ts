import { Breaker, type BreakerLimits } from './breaker.ts'
import type {
  AddOutcome,
  Holder,
  RegistryEvent,
  RegistryEventKind,
  WorkerCandidate,
  WorkerView,
} from './registry-view.ts'
import type { LoadTracker } from './tickets.ts'
import type { Role, WorkerSpec, WorkerState } from './worker.ts'

export type * from './registry-view.ts'

/**
 * One request dispatched to one worker. Ends once: its load is released and the breaker learns the result.
 */
export interface Dispatch {
  readonly worker: WorkerSpec
  /** Candidates at the time of the decision; the policy needs them when the request ends. */
  readonly index: number
  /** False once the worker was removed: its index, and its name, may be those of another one. */
  isCurrent(): boolean
  succeeded(nowMs: number): void
  failed(nowMs: number): void
  /** Ended through no fault of the worker: the client left, or got a 4xx response. */
  ignored(): void
}

interface Entry {
  readonly spec: WorkerSpec
  readonly breaker: Breaker
  index: number
  health: 'unknown' | 'healthy' | 'unhealthy'
  readonly holders: Set<Holder>
  /** Removed when its last request has ended. */
  retiring: boolean
  leaving: boolean
}

/**
 * The workers, by name and by role. A decode worker's index is its `cluster`, or its position in the list it
 * came with, or the lowest free index; it keeps it while registered. Listeners are called after every change,
 * and must not throw.
 */
export class Registry {
  readonly #tracker: LoadTracker
  readonly #limits: BreakerLimits
  /** Including those that are leaving. */
  readonly #entries = new Map<string, Entry>()
  /** Excluding those that are leaving, by index. */
  readonly #byIndex: Record<Role, Map<number, Entry>> = { prefill: new Map(), decode: new Map() }
  readonly #listeners = new Set<(event: RegistryEvent) => void>()

  constructor(tracker: LoadTracker, limits: BreakerLimits) {
    this.#tracker = tracker
    this.#limits = limits
  }

  /**
   * Adds the workers of a configuration: those that name their cluster first, so that no other takes it; the
   * rest by their position in the list.
   */
  addAll(specs: readonly WorkerSpec[]): AddOutcome[] {
    const outcomes = new Map<WorkerSpec, AddOutcome>()
    const places = { prefill: 0, decode: 0 }
    const placed = specs.map(spec => ({ spec, place: places[spec.role]++ }))
    for (const named of [true, false])
      for (const { spec, place } of placed)
        if ((spec.cluster !== undefined) === named) outcomes.set(spec, this.add(spec, place))
    return specs.map(spec => outcomes.get(spec)!)
  }

  /** `place` is the preferred index if the worker names no cluster. */
  add(spec: WorkerSpec, place?: number): AddOutcome {
    const known = this.#entries.get(spec.id)
    const same =
      known?.spec.url === spec.url && known.spec.dpRank === spec.dpRank && known.spec.role === spec.role
    if (known !== undefined && !known.leaving)
      return same && known.index === (spec.cluster ?? known.index) ? 'unchanged' : 'id_taken'
    const taken = this.#byIndex[spec.role]
    if (spec.cluster !== undefined && taken.has(spec.cluster)) return 'cluster_taken'
    // At the same address it is the same server, and its running requests are its load. At another address it
    // is another server.
    if (known !== undefined && !same) this.#forget(known)
    const index =
      [spec.cluster, place, same ? known.index : undefined].find(
        wish => wish !== undefined && !taken.has(wish),
      ) ?? lowestFree(taken)
    const breaker = same ? known.breaker : this.#createBreaker(spec.id)
    const entry: Entry = {
      spec,
      breaker,
      index,
      health: 'unknown',
      holders: new Set(),
      retiring: false,
      leaving: false,
    }
    this.#entries.set(spec.id, entry)
    taken.set(index, entry)
    this.#tell('added', entry)
    return 'added'
  }

  /**
   * The worker gets no new requests from now on, and is forgotten when its last request has ended. False if
   * there is no such worker.
   */
  remove(id: string): boolean {
    const entry = this.#registered(id)
    if (entry === undefined) return false
    entry.leaving = true
    this.#byIndex[entry.spec.role].delete(entry.index)
    this.#tell('removed', entry)
    this.#forgetWhenIdle(id)
    return true
  }

  drain(id: string, by: Holder = 'admin'): boolean {
    return this.#setDraining(id, by, true)
  }

  undrain(id: string, by: Holder = 'admin'): boolean {
    return this.#setDraining(id, by, false)
  }

  /** Drains the worker for discovery and removes it as soon as it has no request; `undrain` cancels that. */
  retire(id: string): void {
    const entry = this.#registered(id)
    if (entry === undefined) return
    this.#setDraining(id, 'discovery', true)
    entry.retiring = true
    this.#removeWhenIdle(id)
  }

  /** Sets the health of one worker, or of all behind one URL, before any listener is called. */
  setHealth(ids: string | readonly string[], healthy: boolean): void {
    const health = healthy ? 'healthy' : 'unhealthy'
    const entries = [ids].flat().flatMap(id => this.#registered(id) ?? [])
    const changed = entries.filter(entry => entry.health !== health)
    for (const entry of changed) entry.health = health
    for (const entry of changed) this.#tell(health, entry)
  }

  /**
   * Workers that take a new request now, by index; empty if there are none, which the client gets as a 503.
   * `exclude` has ids of workers, and URLs for all workers at an address: no id is a URL.
   */
  candidates(role: Role, nowMs: number, exclude?: ReadonlySet<string>): WorkerCandidate[] {
    const candidates: WorkerCandidate[] = []
    for (const entry of this.#byIndex[role].values()) {
      const { index, spec } = entry
      if (!mayTake(entry, nowMs, exclude)) continue
      const elsewhere = this.#tracker.elsewhere(spec.id, role)
      candidates.push({
        worker: index,
        id: spec.id,
        inflight: this.#tracker.inflight(spec.id, role) + elsewhere.inflight,
        tokens: this.#tracker.tokens(spec.id, role) + elsewhere.tokens,
      })
    }
    return candidates.sort((a, b) => a.worker - b.worker)
  }

  /** True if there are any. */
  hasCandidates(role: Role, nowMs: number, exclude?: ReadonlySet<string>): boolean {
    for (const entry of this.#byIndex[role].values()) if (mayTake(entry, nowMs, exclude)) return true
    return false
  }

  /**
   * Counts a request from this moment, before a byte is sent. Undefined if the worker takes none: pick again.
   */
  dispatch(role: Role, index: number, tokens: number, nowMs: number): Dispatch | undefined {
    const entry = this.#byIndex[role].get(index)
    if (entry === undefined || stateOf(entry, nowMs) !== 'ready') return undefined
    const pass = entry.breaker.allow(nowMs)
    if (pass === false) return undefined
    const { id } = entry.spec
    // A ticket that the janitor releases ends the pass too: a probe that never ends would keep the worker out
    // forever.
    const ticket = this.#tracker.take(id, role, tokens, nowMs, () => {
      pass.ignored()
      this.#removeWhenIdle(id)
      this.#forgetWhenIdle(id)
    })
    return {
      worker: entry.spec,
      index,
      isCurrent: () => this.#byIndex[role].get(index) === entry,
      succeeded: endMs => {
        pass.succeeded(endMs)
        ticket.release()
      },
      failed: endMs => {
        pass.failed(endMs)
        ticket.release()
      },
      ignored: () => ticket.release(),
    }
  }

  /**
   * Registers a request that is already on the worker according to another process: it is counted whatever
   * the worker's state, and its end does not reach the breaker. Undefined if there is no such worker.
   */
  adopt(id: string, role: Role, tokens: number, takenMs: number): Dispatch | undefined {
    const entry = this.#entries.get(id)
    if (entry?.spec.role !== role) return undefined
    const { release } = this.#tracker.take(id, role, tokens, takenMs, () => {
      this.#removeWhenIdle(id)
      this.#forgetWhenIdle(id)
    })
    const { spec, index } = entry
    const isCurrent = () => this.#byIndex[role].get(index) === entry
    return { worker: spec, index, isCurrent, succeeded: release, failed: release, ignored: release }
  }

  /** All workers, including those that are leaving. */
  views(nowMs: number): WorkerView[] {
    return [...this.#entries.values()].map(entry => {
      const { spec, index, breaker, leaving } = entry
      const load = {
        inflight: this.#tracker.inflight(spec.id, spec.role),
        tokens: this.#tracker.tokens(spec.id, spec.role),
      }
      const { inflight: inflightElsewhere } = this.#tracker.elsewhere(spec.id, spec.role)
      return {
        spec,
        index,
        state: stateOf(entry, nowMs),
        breaker: breaker.stateAt(nowMs),
        ...load,
        inflightElsewhere,
        leaving,
      }
    })
  }

  /** Ids of the workers that this holder keeps out of rotation. */
  heldBy(holder: Holder): string[] {
    return [...this.#entries.values()]
      .filter(({ leaving, holders }) => !leaving && holders.has(holder))
      .map(({ spec }) => spec.id)
  }

  /** @returns a function that ends the subscription. */
  subscribe(listener: (event: RegistryEvent) => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  #createBreaker(id: string): Breaker {
    const breaker: Breaker = new Breaker(this.#limits, state => {
      const entry = this.#entries.get(id)
      // Requests of a forgotten worker may end when another has its name.
      if (entry?.breaker === breaker) this.#tell(`breaker_${state}`, entry)
    })
    return breaker
  }

  #registered(id: string): Entry | undefined {
    const entry = this.#entries.get(id)
    return entry?.leaving === false ? entry : undefined
  }

  #setDraining(id: string, by: Holder, draining: boolean): boolean {
    const entry = this.#registered(id)
    if (entry === undefined) return false
    const before = entry.holders.size > 0
    if (draining) entry.holders.add(by)
    else entry.holders.delete(by)
    if (by === 'discovery' && !draining) entry.retiring = false
    const after = entry.holders.size > 0
    if (before !== after) this.#tell(after ? 'drained' : 'undrained', entry)
    return true
  }

  #removeWhenIdle(id: string): void {
    const entry = this.#registered(id)
    if (entry?.retiring === true && this.#tracker.inflight(id, entry.spec.role) === 0) this.remove(id)
  }

  #forgetWhenIdle(id: string): void {
    const entry = this.#entries.get(id)
    if (entry?.leaving === true && this.#tracker.inflight(id, entry.spec.role) === 0) this.#forget(entry)
  }

  #forget(entry: Entry): void {
    this.#entries.delete(entry.spec.id)
    this.#tracker.retire(entry.spec.id)
    this.#tell('forgotten', entry)
  }

  #tell(kind: RegistryEventKind, { spec, index }: Entry): void {
    for (const listener of this.#listeners) listener({ kind, worker: spec, index })
  }
}

function mayTake(entry: Entry, nowMs: number, exclude: ReadonlySet<string> | undefined): boolean {
  if (stateOf(entry, nowMs) !== 'ready') return false
  return (
    exclude === undefined ||
    exclude.size === 0 ||
    !(exclude.has(entry.spec.id) || exclude.has(entry.spec.url))
  )
}

function stateOf({ leaving, holders, health, breaker }: Entry, nowMs: number): WorkerState {
  if (leaving || holders.size > 0) return 'draining'
  if (health !== 'healthy') return health
  return breaker.wouldAllow(nowMs) ? 'ready' : 'open'
}

function lowestFree(taken: ReadonlyMap<number, unknown>): number {
  let index = 0
  while (taken.has(index)) index++
  return index
}
