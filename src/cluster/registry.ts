import { Breaker, type BreakerLimits, type BreakerState } from './breaker.ts'
import type { TicketDesk } from './tickets.ts'
import type { Role, WorkerSpec, WorkerState } from './worker.ts'

export type RegistryEventKind = 'added' | 'removed' | 'forgotten' | 'drained' | 'undrained' | 'healthy' | 'unhealthy' | `breaker_${BreakerState}` // prettier-ignore

export interface RegistryEvent {
  readonly kind: RegistryEventKind
  readonly worker: WorkerSpec
}

/** `unchanged`: it was there already. The last two changed nothing because of another worker. */
export type AddOutcome = 'added' | 'unchanged' | 'id_taken' | 'cluster_taken'

/** A worker that may be picked now. For decode workers `worker` is the row of their centroid. */
export interface WorkerCandidate {
  readonly worker: number
  readonly id: string
  readonly inflight: number
}

export interface WorkerView {
  readonly spec: WorkerSpec
  readonly index: number
  readonly state: WorkerState
  readonly breaker: BreakerState
  readonly inflight: number
  readonly tokens: number
  /** Removed, with requests that still run. */
  readonly leaving: boolean
}

/** One request on its way to one worker. Ends once: its load goes and the breaker learns how it went. */
export interface Dispatch {
  readonly worker: WorkerSpec
  /** As it was at the decision: what the policy must be told when the request ends. */
  readonly index: number
  succeeded(nowMs: number): void
  failed(nowMs: number): void
  /** Ended, and the worker is not to blame: the client left, or was answered 4xx. */
  ignored(): void
}

interface Entry {
  readonly spec: WorkerSpec
  readonly breaker: Breaker
  index: number
  health: 'unknown' | 'healthy' | 'unhealthy'
  draining: boolean
  leaving: boolean
}

/**
 * The workers, by name and by role. A decode worker's index is its `cluster`, or else its place in the list it came with, or the lowest
 * that is free; it keeps it for as long as it is registered. Listeners hear of every change after it was made, and must not throw.
 */
export class Registry {
  readonly #desk: TicketDesk
  readonly #limits: BreakerLimits
  /** Those that are leaving too. */
  readonly #entries = new Map<string, Entry>()
  /** Those that are not, by index. */
  readonly #byIndex: Record<Role, Map<number, Entry>> = { prefill: new Map(), decode: new Map() }
  readonly #listeners = new Set<(event: RegistryEvent) => void>()

  constructor(desk: TicketDesk, limits: BreakerLimits) {
    this.#desk = desk
    this.#limits = limits
  }

  /** Workers of a configuration: those that name their cluster come first, so that no other takes it; the rest get their place in the list. */
  addAll(specs: readonly WorkerSpec[]): AddOutcome[] {
    const outcomes = new Map<WorkerSpec, AddOutcome>()
    const places = { prefill: 0, decode: 0 }
    const placed = specs.map(spec => ({ spec, place: places[spec.role]++ }))
    for (const named of [true, false])
      for (const { spec, place } of placed) if ((spec.cluster !== undefined) === named) outcomes.set(spec, this.add(spec, place))
    return specs.map(spec => outcomes.get(spec)!)
  }

  /** `place` is the index wished for when the worker names no cluster. */
  add(spec: WorkerSpec, place?: number): AddOutcome {
    const known = this.#entries.get(spec.id)
    const same = known?.spec.url === spec.url && known.spec.role === spec.role
    if (known !== undefined && !known.leaving) return same && known.index === (spec.cluster ?? known.index) ? 'unchanged' : 'id_taken'
    const taken = this.#byIndex[spec.role]
    if (spec.cluster !== undefined && taken.has(spec.cluster)) return 'cluster_taken'
    // Back at the same address it is the same server, and the requests that it still has are its load. At another one it is another.
    if (known !== undefined && !same) this.#forget(known)
    const index = [spec.cluster, place, same ? known.index : undefined].find(wish => wish !== undefined && !taken.has(wish)) ?? lowestFree(taken) // prettier-ignore
    const breaker = same ? known.breaker : this.#createBreaker(spec.id)
    const entry: Entry = { spec, breaker, index, health: 'unknown', draining: false, leaving: false }
    this.#entries.set(spec.id, entry)
    taken.set(index, entry)
    this.#tell('added', entry)
    return 'added'
  }

  /** Takes no new requests from now on, and is forgotten when the last of its requests has ended. False when there is no such worker. */
  remove(id: string): boolean {
    const entry = this.#registered(id)
    if (entry === undefined) return false
    entry.leaving = true
    this.#byIndex[entry.spec.role].delete(entry.index)
    this.#tell('removed', entry)
    this.#forgetWhenIdle(id)
    return true
  }

  drain(id: string): boolean {
    return this.#setDraining(id, true)
  }

  undrain(id: string): boolean {
    return this.#setDraining(id, false)
  }

  setHealth(id: string, healthy: boolean): void {
    const entry = this.#registered(id)
    const health = healthy ? 'healthy' : 'unhealthy'
    if (entry === undefined || entry.health === health) return
    entry.health = health
    this.#tell(health, entry)
  }

  /** Those that take a new request now, by index; empty when there are none, which the client is told with a 503. */
  candidates(role: Role, nowMs: number, exclude?: ReadonlySet<string>): WorkerCandidate[] {
    const candidates: WorkerCandidate[] = []
    for (const entry of this.#byIndex[role].values()) {
      const { index, spec } = entry
      if (!mayTake(entry, nowMs, exclude)) continue
      candidates.push({ worker: index, id: spec.id, inflight: this.#desk.inflight(spec.id, role) })
    }
    return candidates.sort((a, b) => a.worker - b.worker)
  }

  /** Whether there are any. */
  hasCandidates(role: Role, nowMs: number, exclude?: ReadonlySet<string>): boolean {
    for (const entry of this.#byIndex[role].values()) if (mayTake(entry, nowMs, exclude)) return true
    return false
  }

  /** Counts a request from this moment, before a byte is sent. Undefined when the worker takes none: pick again. */
  dispatch(role: Role, index: number, tokens: number, nowMs: number): Dispatch | undefined {
    const entry = this.#byIndex[role].get(index)
    if (entry === undefined || stateOf(entry, nowMs) !== 'ready') return undefined
    const pass = entry.breaker.allow(nowMs)
    if (pass === false) return undefined
    const { id } = entry.spec
    // A ticket that the janitor has to release ends the pass as well: a probe that never ends would keep the worker out for good.
    const ticket = this.#desk.take(id, role, tokens, nowMs, () => {
      pass.ignored()
      this.#forgetWhenIdle(id)
    })
    return {
      worker: entry.spec,
      index,
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

  /** All workers, those that are leaving included. */
  views(nowMs: number): WorkerView[] {
    return [...this.#entries.values()].map(entry => {
      const { spec, index, breaker, leaving } = entry
      const load = { inflight: this.#desk.inflight(spec.id, spec.role), tokens: this.#desk.tokens(spec.id, spec.role) }
      return { spec, index, state: stateOf(entry, nowMs), breaker: breaker.stateAt(nowMs), ...load, leaving }
    })
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

  #setDraining(id: string, draining: boolean): boolean {
    const entry = this.#registered(id)
    if (entry === undefined) return false
    if (entry.draining === draining) return true
    entry.draining = draining
    this.#tell(draining ? 'drained' : 'undrained', entry)
    return true
  }

  #forgetWhenIdle(id: string): void {
    const entry = this.#entries.get(id)
    if (entry?.leaving === true && this.#desk.inflight(id, entry.spec.role) === 0) this.#forget(entry)
  }

  #forget(entry: Entry): void {
    this.#entries.delete(entry.spec.id)
    this.#desk.retire(entry.spec.id)
    this.#tell('forgotten', entry)
  }

  #tell(kind: RegistryEventKind, { spec }: Entry): void {
    for (const listener of this.#listeners) listener({ kind, worker: spec })
  }
}

function mayTake(entry: Entry, nowMs: number, exclude: ReadonlySet<string> | undefined): boolean {
  return stateOf(entry, nowMs) === 'ready' && exclude?.has(entry.spec.id) !== true
}

function stateOf({ leaving, draining, health, breaker }: Entry, nowMs: number): WorkerState {
  if (leaving || draining) return 'draining'
  if (health !== 'healthy') return health
  return breaker.wouldAllow(nowMs) ? 'ready' : 'open'
}

function lowestFree(taken: ReadonlyMap<number, unknown>): number {
  let index = 0
  while (taken.has(index)) index++
  return index
}
