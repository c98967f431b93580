/** What is in flight, told to the other replicas and heard of them. It knows messages, and nothing of how they travel. */
import type { Registry } from '../../../cluster/registry.ts'
import type { LoadTracker } from '../../../cluster/tickets.ts'
import { createUnseen, type Unseen } from '../../../policy/anticipate.ts'
import type { DecodePolicy } from '../../../policy/decode-policy.ts'
import type { ReplicaSettings } from '../../config/settings.ts'
import type { Log, RateLimitedLog } from '../../observe/log/log.ts'
import { Echo } from './store-latency.ts'
import { type Message, type Sender, type StateMessage, type WorkerKey, workerKey } from './messages.ts'
import { Others } from './others.ts'
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
  /** Resolves with its bytes, or undefined where nobody got it. Never rejects. */
  readonly tell: (message: Message) => Promise<number | undefined>
}

/** A replica is not asked for its rows more often. */
const ASK_AGAIN_MS = 100
/** So many come and go that are worth a line each. */
const SAID_A_MINUTE = 60
const MINUTE_MS = 60_000

export class LoadSharing {
  /** Policies add what the others are supposed to have sent unseen (docs/guides/scale.md). */
  readonly unseen: Unseen
  readonly #options: LoadSharingOptions
  readonly #others: Others
  readonly #union: UnionShare
  readonly #publisher: Publisher
  readonly #echo = new Echo()
  readonly #asked = new Map<string, number>()
  /** Workers of this gateway. */
  #known: ReadonlySet<WorkerKey> = new Set()
  #seq = 0
  #expiry: NodeJS.Timeout | undefined
  #expiryMs = Infinity
  #said = 0
  #saidFromMs = -Infinity

  constructor(options: LoadSharingOptions) {
    const { settings, tracker, registry, self, tell } = options
    const { publishMs, unionMs, leaseMs, bytesPerSecond } = settings
    this.#options = options
    const union = (this.#union = new UnionShare(registry, cells => this.#others.rows(cells)))
    this.#others = new Others((...change) => union.rowChanged(...change), {
      isKnown: key => this.#known.has(key),
      get cells() {
        return union.cells
      },
    })
    this.#look()
    this.unseen = createUnseen({
      // Leases are renewed more often than that, and say the same.
      viewAgeMs: () => Math.min(publishMs, leaseMs / RENEWALS) + this.#echo.transitMs,
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
      send: speech => {
        const seq = ++this.#seq
        this.#echo.sent(seq, performance.now())
        return tell({ kind: 'state', from: self, seq, leaseMs, ...speech })
      },
    })
    tracker.elsewhere = (worker, leg) =>
      this.#others.count === 0 ? 0 : this.#others.inflight(workerKey(leg, worker))
    tracker.onChange = () => this.#publisher.touch()
    registry.subscribe(({ kind, worker }) => {
      if (kind !== 'added' && kind !== 'removed') return
      this.#look()
      if (worker.role === 'decode') this.#union.workersChanged()
      if (kind === 'added') this.#askAll()
    })
  }

  get others(): number {
    return this.#others.count
  }

  /** Since the one was heard that has been silent longest; 0 without others. */
  silentMs(nowMs: number): number {
    return nowMs - (this.#others.oldestHeardMs ?? nowMs)
  }

  /** Since something of our own came back. */
  unechoedMs(nowMs: number): number {
    return this.#echo.silentMs(nowMs)
  }

  policyChanged(policy: DecodePolicy): void {
    this.#union.policyChanged(policy)
    this.#publisher.tellAll()
    this.#askAll()
  }

  /** Others can be spoken to from now on. */
  start(): void {
    this.#echo.begin(performance.now())
    void this.#options.tell({ kind: 'ask', from: this.#options.self, of: '' })
    this.#publisher.start()
  }

  /** They cannot, for now. What they said holds until their leases end. */
  pause(): void {
    this.#publisher.stop()
  }

  stop(): void {
    this.#publisher.stop()
    this.#options.tracker.onChange = () => {}
    clearTimeout(this.#expiry)
  }

  /** Of our own. */
  cameBack(message: Message): void {
    if (message.kind === 'state') this.#echo.heard(message.seq, performance.now())
  }

  /** Of another. @returns why it is passed over. */
  heard(message: Message): Ignored | undefined {
    const { from } = message
    if (message.kind === 'ask' && ['', this.#options.self.id].includes(message.of)) this.#publisher.tellAll()
    if (message.kind === 'leave') this.#left(from)
    return message.kind === 'state' ? this.#heardState(message) : undefined
  }

  #heardState(message: StateMessage): Ignored | undefined {
    const { from } = message
    const nowMs = performance.now()
    const isNew = !this.#others.knows(from)
    const heard = this.#others.heard(message, nowMs)
    if (isNew && this.#others.knows(from)) this.#say('another one is there', from.id, nowMs)
    if (heard === 'missed_rows') this.#askFor(from.id, nowMs)
    if (nowMs + message.leaseMs < this.#expiryMs) this.#watchLeases()
    if (heard === 'twin') return 'same_id'
    return heard === 'malformed' || heard === 'too_many' ? heard : undefined
  }

  /** Who can write to the store must not be able to fill the log. */
  #say(what: string, replica: string, nowMs: number): void {
    const { log, rateLimitedLog } = this.#options
    if (nowMs - this.#saidFromMs > MINUTE_MS) [this.#said, this.#saidFromMs] = [0, nowMs]
    if (this.#said++ < SAID_A_MINUTE) log.info({ replica }, `replicas: ${what}`)
    else
      rateLimitedLog.say(`replicas ${what}`, nowMs, times =>
        log.warn({ replica, times }, `replicas: ${what}, and many more`),
      )
  }

  #look(): void {
    const views = this.#options.registry.views(performance.now())
    this.#known = new Set(views.map(({ spec }) => workerKey(spec.role, spec.id)))
  }

  /** What was of no use before is of use now. */
  #askAll(): void {
    if (this.#others.count === 0) return
    this.#others.missed()
    void this.#options.tell({ kind: 'ask', from: this.#options.self, of: '' })
  }

  #askFor(id: string, nowMs: number): void {
    if (nowMs - (this.#asked.get(id) ?? -Infinity) < ASK_AGAIN_MS) return
    this.#asked.set(id, nowMs)
    void this.#options.tell({ kind: 'ask', from: this.#options.self, of: id })
  }

  /** One timer, for the lease that ends first: messages come far more often than leases end. */
  #watchLeases(): void {
    clearTimeout(this.#expiry)
    this.#expiryMs = this.#others.nextExpiryMs ?? Infinity
    if (this.#expiryMs === Infinity) return
    const waitMs = Math.max(1, Math.ceil(this.#expiryMs - performance.now()))
    this.#expiry = setTimeout(() => {
      const nowMs = performance.now()
      for (const id of this.#others.expire(nowMs)) {
        this.#asked.delete(id)
        this.#say('one was not heard of for as long as its lease, and is taken for dead', id, nowMs)
      }
      this.#watchLeases()
    }, waitMs).unref()
  }

  #left(from: Sender): void {
    this.#asked.delete(from.id)
    if (this.#others.forget(from)) this.#say('one has left', from.id, performance.now())
  }
}
