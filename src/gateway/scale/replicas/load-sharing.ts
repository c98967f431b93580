/** Shares the requests in flight with the other replicas. Knows messages, but not their transport. */
import type { Registry } from '../../../cluster/registry.ts'
import { IDLE, type LoadTracker } from '../../../cluster/tickets.ts'
import { createUnseen, type Unseen } from '../../../policy/anticipate.ts'
import type { DecodePolicy } from '../../../policy/decode-policy.ts'
import type { ReplicaSettings } from '../../config/settings.ts'
import type { Log, RateLimitedLog } from '../../observe/log/log.ts'
import { StoreLatency } from './store-latency.ts'
import { type Message, type Sender, type StateMessage, type WorkerKey, workerKey } from './messages.ts'
import { OtherReplicas } from './other-replicas.ts'
import { Publisher, RENEWALS } from './publisher.ts'
import type { Ignored } from '../../observe/replica-status.ts'
import { UnionShare } from './union-share.ts'

export interface LoadSharingOptions {
  readonly settings: Pick<ReplicaSettings, 'publishMs' | 'unionMs' | 'leaseMs' | 'bytesPerSecond'>
  readonly self: Sender
  readonly tracker: LoadTracker
  readonly registry: Registry
  readonly log: Log
  readonly rateLimitedLog: RateLimitedLog
  /** Resolves with the number of bytes, or undefined if it was not sent. Never rejects. */
  readonly send: (message: Message) => Promise<number | undefined>
}

/** Minimum interval of asking a replica for its rows. */
const ASK_INTERVAL_MS = 100
/** Replicas that join or leave get a log line each up to this many per minute. */
const LINES_PER_MINUTE = 60
const MINUTE_MS = 60_000

export class LoadSharing {
  /**
   * Estimate of requests that other replicas have sent and that are not known here yet
   * (docs/guides/scale.md).
   */
  readonly unseen: Unseen
  readonly #options: LoadSharingOptions
  readonly #others: OtherReplicas
  readonly #union: UnionShare
  readonly #publisher: Publisher
  readonly #latency = new StoreLatency()
  /** When each replica was last asked for its rows. */
  readonly #askedMs = new Map<string, number>()
  /** Workers of this gateway. */
  #known: ReadonlySet<WorkerKey> = new Set()
  #seq = 0
  #expiry: NodeJS.Timeout | undefined
  #expiryMs = Infinity
  #lines = 0
  #linesFromMs = -Infinity

  constructor(options: LoadSharingOptions) {
    const { settings, tracker, registry, self, send } = options
    const { publishMs, unionMs, leaseMs, bytesPerSecond } = settings
    this.#options = options
    const union = (this.#union = new UnionShare(registry, cells => this.#others.rows(cells)))
    this.#others = new OtherReplicas((...change) => union.rowChanged(...change), {
      isKnown: key => this.#known.has(key),
      get cells() {
        return union.cells
      },
    })
    this.#readWorkers()
    this.unseen = createUnseen({
      // A lease renewal carries the same loads, so the view is never older than that.
      viewAgeMs: () => Math.min(publishMs, leaseMs / RENEWALS) + this.#latency.transitMs,
      perOwn: () => this.#others.count,
      nowMs: () => performance.now(),
    })
    this.#publisher = new Publisher({
      publishMs,
      rowsMs: unionMs,
      leaseMs,
      bytesPerSecond,
      nowMs: () => performance.now(),
      loads: () =>
        Array.from(tracker.loads(), ({ worker, leg, inflight, tokens }) => ({
          key: workerKey(leg, worker),
          inflight,
          tokens,
        })),
      cells: () => this.#union.cells,
      rows: whole => this.#union.rows(whole),
      send: publication => {
        const seq = ++this.#seq
        this.#latency.sent(seq, performance.now())
        return send({ kind: 'state', from: self, seq, leaseMs, ...publication })
      },
    })
    tracker.elsewhere = (worker, leg) =>
      this.#others.count === 0 ? IDLE : this.#others.load(workerKey(leg, worker))
    tracker.onChange = () => this.#publisher.touch()
    registry.subscribe(({ kind, worker }) => {
      if (kind !== 'added' && kind !== 'removed') return
      this.#readWorkers()
      if (worker.role === 'decode') this.#union.workersChanged()
      if (kind === 'added') this.#askAll()
    })
  }

  get others(): number {
    return this.#others.count
  }

  /** Longest time since the last message of a replica; 0 without others. */
  silentMs(nowMs: number): number {
    return nowMs - (this.#others.oldestMessageMs ?? nowMs)
  }

  /** Time since a message of our own came back through the store. */
  sinceOwnMessageMs(nowMs: number): number {
    return this.#latency.silentMs(nowMs)
  }

  policyChanged(policy: DecodePolicy): void {
    this.#union.policyChanged(policy)
    this.#publisher.publishAll()
    this.#askAll()
  }

  /** The store is reachable. */
  start(): void {
    this.#latency.start(performance.now())
    void this.#options.send({ kind: 'ask', from: this.#options.self, of: '' })
    this.#publisher.start()
  }

  /** The store is unreachable. The last known loads hold until their leases end. */
  pause(): void {
    this.#publisher.stop()
  }

  stop(): void {
    this.#publisher.stop()
    this.#options.tracker.onChange = () => {}
    clearTimeout(this.#expiry)
  }

  /** A message of our own that came back. */
  ownMessage(message: Message): void {
    if (message.kind === 'state') this.#latency.received(message.seq, performance.now())
  }

  /** A message of another replica. Returns the reason if it is ignored. */
  received(message: Message): Ignored | undefined {
    const { from } = message
    if (message.kind === 'ask' && ['', this.#options.self.id].includes(message.of))
      this.#publisher.publishAll()
    if (message.kind === 'leave') this.#left(from)
    return message.kind === 'state' ? this.#receivedState(message) : undefined
  }

  #receivedState(message: StateMessage): Ignored | undefined {
    const { from } = message
    const nowMs = performance.now()
    const isNew = !this.#others.knows(from)
    const outcome = this.#others.received(message, nowMs)
    if (isNew && this.#others.knows(from)) this.#log('replica joined', from.id, nowMs)
    if (outcome === 'missed_rows') this.#askFor(from.id, nowMs)
    if (nowMs + message.leaseMs < this.#expiryMs) this.#watchLeases()
    if (outcome === 'twin') return 'same_id'
    return outcome === 'malformed' || outcome === 'too_many' ? outcome : undefined
  }

  /** Rate-limited: a client that can write to the store must not be able to fill the log. */
  #log(what: string, replica: string, nowMs: number): void {
    const { log, rateLimitedLog } = this.#options
    if (nowMs - this.#linesFromMs > MINUTE_MS) [this.#lines, this.#linesFromMs] = [0, nowMs]
    if (this.#lines++ < LINES_PER_MINUTE) log.info({ replica }, `replicas: ${what}`)
    else
      rateLimitedLog.say(`replicas ${what}`, nowMs, times =>
        log.warn({ replica, times }, `replicas: ${what}, and many others`),
      )
  }

  #readWorkers(): void {
    const views = this.#options.registry.views(performance.now())
    this.#known = new Set(views.map(({ spec }) => workerKey(spec.role, spec.id)))
  }

  /** Rows that were ignored so far are needed now. */
  #askAll(): void {
    if (this.#others.count === 0) return
    this.#others.markIncomplete()
    void this.#options.send({ kind: 'ask', from: this.#options.self, of: '' })
  }

  #askFor(id: string, nowMs: number): void {
    if (nowMs - (this.#askedMs.get(id) ?? -Infinity) < ASK_INTERVAL_MS) return
    this.#askedMs.set(id, nowMs)
    void this.#options.send({ kind: 'ask', from: this.#options.self, of: id })
  }

  /** One timer for the lease that ends first: messages are far more frequent than leases that end. */
  #watchLeases(): void {
    clearTimeout(this.#expiry)
    this.#expiryMs = this.#others.nextExpiryMs ?? Infinity
    if (this.#expiryMs === Infinity) return
    const waitMs = Math.max(1, Math.ceil(this.#expiryMs - performance.now()))
    this.#expiry = setTimeout(() => {
      const nowMs = performance.now()
      for (const id of this.#others.expire(nowMs)) {
        this.#askedMs.delete(id)
        this.#log('lease expired, replica considered dead', id, nowMs)
      }
      this.#watchLeases()
    }, waitMs).unref()
  }

  #left(from: Sender): void {
    this.#askedMs.delete(from.id)
    if (this.#others.forget(from)) this.#log('replica left', from.id, performance.now())
  }
}
