/**
 * Several gateways before the same workers, each with its own requests exactly and those of the others a moment old. Everything here happens
 * beside requests: they read sums that are there and leave a mark that something has changed. Without the store a gateway goes on alone.
 */
import { randomBytes } from 'node:crypto'
import type { Registry } from '../../../cluster/registry.ts'
import type { LoadTracker } from '../../../cluster/tickets.ts'
import type { Unseen } from '../../../policy/anticipate.ts'
import type { ReplicaSettings } from '../../config/settings.ts'
import type { Log, RateLimitedLog } from '../../observe/log/log.ts'
import type { RoutingControl, RoutingView } from '../../routing/routing-control.ts'
import type { Router } from '../../routing/router.ts'
import { ArtifactShare } from './artifact-share.ts'
import { SharedChanges } from './changes.ts'
import { fieldsOf, GatewayChanges, type PolicyChange } from './gateway-changes.ts'
import { LoadSharing } from './load-sharing.ts'
import { decode, encode, type Message, type Sender } from './messages.ts'
import { randomReplicaId } from './replica-id.ts'
import {
  type Ignored,
  IGNORED_WORDS,
  newTally,
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
}

/** A clean end takes no longer for a store that does not answer. */
const LEAVE_MS = 500
/** What could not be done for others is tried again so often. */
const REAPPLY_MS = 10_000

export class Replicas {
  readonly tally = newTally()
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
  #artifactTold: Promise<unknown> = Promise.resolve()
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
      tell: message => this.#tell(message),
    })
  }

  get unseen(): Unseen {
    return this.#loads.unseen
  }

  /** Once routing stands. It does not wait for the store. */
  start(control: RoutingControl, router: Router): void {
    const {
      url,
      caFile,
      namespace,
      timeoutMs,
      retryMs,
      leaseMs,
      changesKeptMs: keptMs,
      artifactBytes: mostBytes,
    } = this.#settings
    const { registry } = this.#parts
    const channel = this.#channel
    const ask = (command: readonly (string | Buffer)[]) => this.#link!.ask(command)
    const artifacts = new ArtifactShare({
      namespace,
      mostBytes,
      keptMs,
      ask,
      load: (path, shownAs) => control.load(path, shownAs),
    })
    const gateway = new GatewayChanges({ registry, control, artifacts })
    const changes = new SharedChanges({
      key: `${namespace}:changes`,
      channel,
      keptMs,
      ask,
      notice: () => encode({ kind: 'changed', from: this.#self }),
      refused: why => this.#ignored('refused', why),
      apply: async fields => this.#applied(await gateway.apply(fields)),
    })
    this.#artifacts = artifacts
    this.#gateway = gateway
    this.#changes = changes
    this.policyChanged(router.table.policy)
    // A worker may have been drained elsewhere before it came here.
    registry.subscribe(({ kind }) => void (kind === 'added' && changes.reapply()))
    this.#link = new StoreLink({
      url,
      channel,
      timeoutMs,
      retryMs,
      ...(caFile !== undefined && { caFile }),
      heard: bytes => this.#heard(bytes),
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

  /** `sent`: its bytes, where it has no path here. The caller does not wait for it. */
  loadedArtifact({ artifact }: RoutingView, path: string, sent?: Buffer): void {
    if (artifact === undefined) return
    const { sha256 } = artifact
    const fields = fieldsOf.artifact(sha256, path)
    this.#changes?.claim(fields)
    // One after the other, so that of two the last is told last.
    this.#artifactTold = this.#artifactTold
      .then(() => this.#artifacts?.remember({ sha256, path }, sent))
      .catch((error: unknown) => this.#failed(error))
      // Claimed before, so that nothing older undoes it; told now that others can have its bytes.
      .then(() => this.#changes?.sync())
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

  /** The others hear of it at once, where they can. */
  async stop(): Promise<void> {
    clearInterval(this.#renewal)
    this.#loads.stop()
    let late: NodeJS.Timeout | undefined
    const tooLate = new Promise(resolve => (late = setTimeout(resolve, LEAVE_MS)))
    if (this.#link?.up === true)
      await Promise.race([this.#tell({ kind: 'leave', from: this.#self }), tooLate])
    clearTimeout(late)
    await this.#link?.close()
  }

  #up(): void {
    this.#parts.log.info({ replica: this.#self.id }, 'replicas: the store can be reached')
    this.#reason = ''
    this.#loads.start()
    this.#changes!.sync()
  }

  #down(reason: string): void {
    // Once, and again when it is another fault: a store may be away for days.
    if (this.#reason !== reason)
      this.#parts.log.warn(
        { reason },
        'replicas: the store cannot be reached; each gateway goes by its own requests',
      )
    this.#reason = reason
    this.#loads.pause()
  }

  #renew(): void {
    if (this.#link?.up !== true) return
    const { leaseMs, timeoutMs } = this.#settings
    const nowMs = performance.now()
    if (this.#loads.unechoedMs(nowMs) > leaseMs + timeoutMs)
      this.#link.drop('it does not pass on what is published')
    void this.#changes!.renew()
    void this.#artifacts!.put().catch((error: unknown) => this.#failed(error))
    if (this.#problems.length === 0 || nowMs - this.#triedMs < REAPPLY_MS) return
    this.#triedMs = nowMs
    void this.#changes!.reapply()
  }

  /** Bytes, where the store took it. */
  async #tell(message: Message): Promise<number | undefined> {
    const bytes = encode(message)
    try {
      await this.#link!.ask(['PUBLISH', this.#channel, bytes])
    } catch (error) {
      this.#failed(error)
      return undefined
    }
    this.tally.out(bytes.length)
    return bytes.length
  }

  #heard(bytes: Buffer): void {
    const message = decode(bytes)
    if (typeof message === 'string') return this.#ignored(message)
    const { id, boot } = message.from
    if (id === this.#self.id) {
      if (boot === this.#self.boot) this.#loads.cameBack(message)
      else this.#ignored('same_id')
      return
    }
    this.tally.in(bytes.length)
    if (message.kind === 'changed') this.#changes!.sync()
    else {
      const why = this.#loads.heard(message)
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
        'replicas: what another one changed cannot be done here; the last good state stays',
      )
  }

  /** Of a connection that failed its owner tells. */
  #failed(error: unknown): void {
    if (error instanceof StoreRefusal) this.#ignored('refused', error.message)
  }

  #ignored(reason: Ignored, why?: string): void {
    this.tally.ignored(reason)
    const { rateLimitedLog, log } = this.#parts
    const more = why === undefined ? {} : { why }
    rateLimitedLog.say(`replicas ${reason}`, performance.now(), times =>
      log.warn({ reason, times, ...more }, IGNORED_WORDS[reason]),
    )
  }
}
