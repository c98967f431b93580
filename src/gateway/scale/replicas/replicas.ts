/**
 * Several gateways in front of the same workers. Each knows its own requests exactly and those of the others
 * with a short delay. No request waits for any of this: it reads current sums and marks a change. Without the
 * store a gateway continues alone.
 */
import { randomBytes } from 'node:crypto'
import type { Registry } from '../../../cluster/registry.ts'
import type { LoadTracker } from '../../../cluster/tickets.ts'
import type { Unseen } from '../../../policy/anticipate.ts'
import type { ReplicaSettings } from '../../config/settings.ts'
import type { Log, RateLimitedLog } from '../../observe/log/log.ts'
import type { AdaptHold } from '../../routing/adapt-hold.ts'
import type { RoutingControl, RoutingView } from '../../routing/routing-control.ts'
import type { Router } from '../../routing/router.ts'
import { ArtifactShare } from './artifact-share.ts'
import { type Fields, SharedChanges } from './changes.ts'
import { fieldsOf, GatewayChanges, type PolicyChange } from './gateway-changes.ts'
import { LoadSharing } from './load-sharing.ts'
import { decode, encode, type Message, type Sender } from './messages.ts'
import { randomReplicaId } from './replica-id.ts'
import {
  type Ignored,
  IGNORED_TEXT,
  createMessageCounts,
  type ReplicaStatus,
  statusOf,
} from '../../observe/replica-status.ts'
import { StoreLink } from './store-link.ts'
import { StoreRefusal } from './store-session.ts'

export interface ReplicaParts {
  readonly tracker: LoadTracker
  readonly registry: Registry
  readonly log: Log
  readonly rateLimitedLog: RateLimitedLog
  /** Outlives this process. Undefined in a single process. */
  readonly memory?: ReplicaMemory
  /** File of the artifact that the gateway starts with. */
  readonly artifact?: string
}

/** Changes by operators that are not in the store yet. */
export interface ReplicaMemory {
  readonly pending: Fields
  pendingChanged(pending: Fields): void
}

/** How long a shutdown waits for a store that does not respond. */
const LEAVE_MS = 500
/** Interval of retries of changes that could not be applied. */
const REAPPLY_MS = 10_000

export class Replicas {
  readonly messageCounts = createMessageCounts()
  readonly #settings: ReplicaSettings & { readonly url: string }
  readonly #parts: ReplicaParts
  readonly #self: Sender
  readonly #channel: string
  readonly #loads: LoadSharing
  #link: StoreLink | undefined
  #changes: SharedChanges | undefined
  #gateway: GatewayChanges | undefined
  #artifacts: ArtifactShare | undefined
  #renewal: NodeJS.Timeout | undefined
  #artifactQueue: Promise<unknown> = Promise.resolve()
  #reason = 'not yet'
  #problems: readonly string[] = []
  #triedMs = 0

  constructor(settings: ReplicaSettings & { readonly url: string }, parts: ReplicaParts) {
    const { tracker, registry, log } = parts
    this.#settings = settings
    this.#parts = parts
    this.#self = {
      id: settings.id ?? randomReplicaId(),
      boot: randomBytes(4).readUInt32LE(),
    }
    this.#channel = `${settings.namespace}:replicas`
    this.#loads = new LoadSharing({
      settings,
      self: this.#self,
      tracker,
      registry,
      log,
      rateLimitedLog: parts.rateLimitedLog,
      send: message => this.#send(message),
    })
  }

  get unseen(): Unseen {
    return this.#loads.unseen
  }

  /** Called once routing has started. Does not wait for the store. */
  start(
    control: RoutingControl,
    router: Router,
    held: (hold: AdaptHold | undefined) => void = () => {},
  ): void {
    const {
      url,
      caFile,
      namespace,
      timeoutMs,
      retryMs,
      leaseMs,
      changesKeptMs: keptMs,
      artifactBytes: maxBytes,
    } = this.#settings
    const { registry, memory, artifact: startedWith } = this.#parts
    const channel = this.#channel
    const ask = (command: readonly (string | Buffer)[]) => this.#link!.ask(command)
    const artifacts = new ArtifactShare({
      namespace,
      maxBytes,
      keptMs,
      ask,
      load: (path, shownAs) => control.load(path, shownAs),
      startedWith,
    })
    const gateway = new GatewayChanges({ registry, control, artifacts, held })
    const changes = new SharedChanges({
      key: `${namespace}:changes`,
      channel,
      keptMs,
      ask,
      notice: () => encode({ kind: 'changed', from: this.#self }),
      refused: why => this.#ignored('refused', why),
      apply: async fields => this.#applied(await gateway.apply(fields)),
      pending: memory?.pending,
      pendingChanged: pending => memory?.pendingChanged(pending),
    })
    this.#artifacts = artifacts
    this.#gateway = gateway
    this.#changes = changes
    this.policyChanged(router.table.policy)
    // A new worker may already be drained on other replicas.
    registry.subscribe(({ kind }) => void (kind === 'added' && changes.reapply()))
    this.#link = new StoreLink({
      url,
      channel,
      timeoutMs,
      retryMs,
      caFile,
      received: bytes => this.#received(bytes),
      up: () => this.#up(),
      down: reason => this.#down(reason),
    })
    this.#renewal = setInterval(() => this.#renew(), leaseMs / 3).unref()
  }

  policyChanged(policy: Router['table']['policy']): void {
    this.#loads.policyChanged(policy)
  }

  changedPolicy(change: PolicyChange): void {
    this.#changes?.made(fieldsOf.policy(change))
  }

  /**
   * `sent`: the bytes of an uploaded artifact, which has no path. `hold`: of live recalibration, with this
   * artifact. Runs in the background.
   */
  loadedArtifact(
    { artifact }: RoutingView,
    path: string,
    { sent, hold }: { readonly sent?: Buffer; readonly hold?: AdaptHold } = {},
  ): void {
    if (artifact === undefined) return
    const { sha256 } = artifact
    const fields = fieldsOf.artifact(sha256, path, hold)
    this.#changes?.claim(fields)
    // One after the other, so that the last one is published last.
    this.#artifactQueue = this.#artifactQueue
      .then(() => this.#artifacts?.remember({ sha256, path }, sent))
      .catch((error: unknown) => this.#failed(error))
      // Claimed above, so that nothing older undoes it; published now that its bytes are available.
      .then(() => this.#changes?.sync())
  }

  /** Undefined if the store lacks it or cannot be reached. */
  async fetchArtifact(sha256: string): Promise<Buffer | undefined> {
    return this.#artifacts?.fetch(sha256).catch(() => undefined)
  }

  refitted({ artifact }: RoutingView): void {
    if (artifact === undefined) return
    const fields = fieldsOf.refit(artifact.clusters, Date.now())
    this.#gateway?.refitted(fields['refit']!)
    this.#changes?.made(fields)
  }

  drained(worker: string, drained: boolean): void {
    this.#gateway?.drained(worker, drained)
    this.#changes?.made(fieldsOf.drain(worker, drained))
  }

  status(): ReplicaStatus {
    return statusOf({
      up: this.#link?.up === true,
      reason: this.#reason,
      others: this.#loads.others,
      silentMs: this.#loads.silentMs(performance.now()),
      version: this.#changes?.version ?? 0,
      waiting: this.#changes?.waiting ?? 0,
      problems: this.#problems,
    })
  }

  /** Tells the other replicas if the store is reachable. */
  async stop(): Promise<void> {
    clearInterval(this.#renewal)
    this.#loads.stop()
    let timer: NodeJS.Timeout | undefined
    const timeout = new Promise(resolve => (timer = setTimeout(resolve, LEAVE_MS)))
    if (this.#link?.up === true)
      await Promise.race([this.#send({ kind: 'leave', from: this.#self }), timeout])
    clearTimeout(timer)
    await this.#link?.close()
  }

  #up(): void {
    this.#parts.log.info({ replica: this.#self.id }, 'replicas: connected to the store')
    this.#reason = ''
    this.#loads.start()
    this.#changes!.sync()
  }

  #down(reason: string): void {
    // Logged only when the reason changes: a store may be down for days.
    if (this.#reason !== reason)
      this.#parts.log.warn(
        { reason },
        'replicas: store unreachable; routing by the requests of this gateway alone',
      )
    this.#reason = reason
    this.#loads.pause()
  }

  #renew(): void {
    if (this.#link?.up !== true) return
    const { leaseMs, timeoutMs } = this.#settings
    const nowMs = performance.now()
    if (this.#loads.sinceOwnMessageMs(nowMs) > leaseMs + timeoutMs)
      this.#link.drop('the store does not deliver published messages')
    void this.#changes!.renew()
    void this.#artifacts!.put().catch((error: unknown) => this.#failed(error))
    if (this.#problems.length === 0 || nowMs - this.#triedMs < REAPPLY_MS) return
    this.#triedMs = nowMs
    void this.#changes!.reapply()
  }

  /** Returns the number of bytes, or undefined if the store did not accept it. */
  async #send(message: Message): Promise<number | undefined> {
    const bytes = encode(message)
    try {
      await this.#link!.ask(['PUBLISH', this.#channel, bytes])
    } catch (error) {
      this.#failed(error)
      return undefined
    }
    this.messageCounts.out(bytes.length)
    return bytes.length
  }

  #received(bytes: Buffer): void {
    const decoded = decode(bytes)
    if (decoded.kind !== 'ok') return this.#ignored(decoded.kind)
    const { message } = decoded
    const { id, boot } = message.from
    if (id === this.#self.id) {
      if (boot === this.#self.boot) this.#loads.ownMessage(message)
      else this.#ignored('same_id')
      return
    }
    this.messageCounts.in(bytes.length)
    if (message.kind === 'changed') this.#changes!.sync()
    else {
      const why = this.#loads.received(message)
      if (why !== undefined) this.#ignored(why)
    }
  }

  #applied(problems: readonly string[]): void {
    const before = this.#problems.join()
    this.#problems = problems
    this.#triedMs = performance.now()
    if (problems.length > 0 && problems.join() !== before)
      this.#parts.log.error(
        { problems },
        'replicas: cannot apply a change of another replica; keeping the current state',
      )
  }

  /** The store link reports connection errors. */
  #failed(error: unknown): void {
    if (error instanceof StoreRefusal) this.#ignored('refused', error.message)
  }

  #ignored(reason: Ignored, why?: string): void {
    this.messageCounts.ignored(reason)
    const { rateLimitedLog, log } = this.#parts
    rateLimitedLog.say(`replicas ${reason}`, performance.now(), times =>
      log.warn({ reason, times, why }, IGNORED_TEXT[reason]),
    )
  }
}
