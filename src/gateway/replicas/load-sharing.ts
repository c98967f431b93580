/** What is in flight, told to the other replicas and heard of them. It knows messages, and nothing of how they travel. */
import type { Registry } from '../../cluster/registry.ts'
import type { TicketDesk } from '../../cluster/tickets.ts'
import { createUnseen, type Unseen } from '../../policy/anticipate.ts'
import type { DecodePolicy } from '../../policy/decode-policy.ts'
import type { ReplicaSettings } from '../config/settings.ts'
import type { Log } from '../log.ts'
import { Echo } from './echo.ts'
import { type Message, type Sender, type StateMessage, workerKey } from './messages.ts'
import { Others } from './others.ts'
import { Publisher } from './publisher.ts'
import { UnionShare } from './union-share.ts'

export interface LoadSharingOptions {
  readonly settings: Pick<ReplicaSettings, 'publishMs' | 'unionMs' | 'leaseMs' | 'bytesPerSecond'>
  readonly self: Sender
  readonly desk: TicketDesk
  readonly registry: Registry
  readonly log: Log
  /** Resolves with its bytes, or undefined where nobody got it. Never rejects. */
  readonly tell: (message: Message) => Promise<number | undefined>
}

/** A replica is not asked for its rows more often. */
const ASK_AGAIN_MS = 100

export class LoadSharing {
  /** Policies add what the others are supposed to have sent unseen (docs/scale.md). */
  readonly unseen: Unseen
  readonly #options: LoadSharingOptions
  readonly #others: Others
  readonly #union: UnionShare
  readonly #publisher: Publisher
  readonly #echo = new Echo()
  readonly #asked = new Map<string, number>()
  #seq = 0
  #expiry: NodeJS.Timeout | undefined

  constructor(options: LoadSharingOptions) {
    const { settings, desk, registry, self, tell } = options
    const { publishMs, unionMs, leaseMs, bytesPerSecond } = settings
    this.#options = options
    this.#others = new Others((...change) => this.#union.rowChanged(...change))
    this.#union = new UnionShare(registry, cells => this.#others.rows(cells))
    this.unseen = createUnseen({
      viewAgeMs: () => publishMs + this.#echo.transitMs,
      perOwn: () => this.#others.count,
      nowMs: () => performance.now(),
    })
    this.#publisher = new Publisher({
      publishMs,
      rowsMs: unionMs,
      leaseMs,
      bytesPerSecond,
      nowMs: () => performance.now(),
      loads: () => Array.from(desk.loads(), ({ worker, leg, inflight, tokens }) => ({ key: workerKey(leg, worker), inflight, tokens })),
      cells: () => this.#union.cells,
      rows: whole => this.#union.rows(whole),
      send: speech => {
        const seq = ++this.#seq
        this.#echo.sent(seq, performance.now())
        return tell({ kind: 'state', from: self, seq, leaseMs, ...speech })
      },
    })
    desk.elsewhere = (worker, leg) => (this.#others.count === 0 ? 0 : this.#others.inflight(workerKey(leg, worker)))
    desk.onChange = () => this.#publisher.touch()
    registry.subscribe(({ kind, worker }) => {
      if (worker.role === 'decode' && (kind === 'added' || kind === 'removed')) this.#union.workersChanged()
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
    this.#options.desk.onChange = () => {}
    clearTimeout(this.#expiry)
  }

  /** Of our own. */
  cameBack(message: Message): void {
    if (message.kind === 'state') this.#echo.heard(message.seq, performance.now())
  }

  /** Of another. False when it is broken. */
  heard(message: Message): boolean {
    const { from } = message
    if (message.kind === 'ask' && ['', this.#options.self.id].includes(message.of)) this.#publisher.tellAll()
    if (message.kind === 'leave') this.#left(from.id)
    return message.kind !== 'state' || this.#heardState(message)
  }

  #heardState(message: StateMessage): boolean {
    const { from } = message
    const nowMs = performance.now()
    if (!this.#others.knows(from)) this.#options.log.info({ replica: from.id }, 'replicas: another one is there')
    const heard = this.#others.heard(message, nowMs)
    if (heard === 'missed_rows') this.#askFor(from.id, nowMs)
    this.#expiry ??= this.#watchLeases()
    return heard !== 'malformed'
  }

  #askFor(id: string, nowMs: number): void {
    if (nowMs - (this.#asked.get(id) ?? -Infinity) < ASK_AGAIN_MS) return
    this.#asked.set(id, nowMs)
    void this.#options.tell({ kind: 'ask', from: this.#options.self, of: id })
  }

  /** One timer, for the lease that ends first: messages come far more often than leases end. */
  #watchLeases(): NodeJS.Timeout | undefined {
    const nextMs = this.#others.nextExpiryMs
    if (nextMs === undefined) return undefined
    const waitMs = Math.max(1, Math.ceil(nextMs - performance.now()))
    return setTimeout(() => {
      for (const id of this.#others.expire(performance.now())) {
        this.#asked.delete(id)
        this.#options.log.warn({ replica: id }, 'replicas: one was not heard of for as long as its lease, and is taken for dead')
      }
      this.#expiry = this.#watchLeases()
    }, waitMs).unref()
  }

  #left(id: string): void {
    this.#asked.delete(id)
    if (this.#others.forget(id)) this.#options.log.info({ replica: id }, 'replicas: one has left')
  }
}
