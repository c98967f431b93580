/** What the admin API needs of the gateway. `app/start-gateway.ts` provides it. */
import type { HealthLoop } from '../../../cluster/health.ts'
import type { Registry } from '../../../cluster/registry.ts'
import type { WorkerSpec } from '../../../cluster/worker.ts'
import type { Settings } from '../../config/settings.ts'
import type { Exchange } from '../../http/exchange.ts'
import type { Insight } from '../../observe/insight/insight.ts'
import type { AdaptView, StoryView } from '../../observe/insight/wire.ts'
import type { Log } from '../../observe/log/log.ts'
import type { LogLevelControl } from '../../observe/log/log-level.ts'
import type { Metrics } from '../../observe/metrics/metrics.ts'
import type { ShadowCounts } from '../../observe/shadow-counts.ts'
import type { ReplicaStatus } from '../../observe/replica-status.ts'
import type { AdaptHold } from '../../routing/adapt-hold.ts'
import type { Router } from '../../routing/router.ts'
import type { RoutingControl, RoutingView } from '../../routing/routing-control.ts'
import type { Upstreams } from '../../upstream/upstreams.ts'
import type { Experiments } from '../experiment/experiments.ts'
import type { Discovery } from '../discovery/discovery.ts'
import type { Replaced } from './replace-routes.ts'

export interface AdminContext {
  readonly settings: Settings
  readonly registry: Registry
  readonly router: Pick<Router, 'table' | 'decisions' | 'decisionsOf' | 'decodeWorkersOf'>
  readonly upstreams: Pick<Upstreams, 'ask'>
  readonly metrics: Metrics
  readonly health: Pick<HealthLoop, 'passiveFailure'>
  readonly insight: Pick<Insight, 'stories'>
  readonly log: Log
  readonly logLevel: LogLevelControl
}

export type Headers = Readonly<Record<string, string>>

export interface AdminParts {
  readonly ctx: AdminContext
  readonly control: RoutingControl
  /** Requests that are running in this process. */
  live(): Iterable<Exchange>
  /** Adds the header that selects one data-parallel rank of a server. */
  withRank(headers: Headers, worker: Pick<WorkerSpec, 'dpRank'>): Headers
  /** Set when other processes also serve requests. */
  readonly elsewhere?: RequestLookup
  /** Undefined without discovery. */
  readonly discovery?: Pick<Discovery, 'statuses' | 'summary'>
  readonly shadow: Pick<ShadowCounts, 'view'>
  readonly experiments: Pick<Experiments, 'start' | 'continue' | 'end' | 'view'>
  /** Undefined without replicas. */
  readonly replicas?: ReplicaUpdates
  /** Starts a new process that takes over. Undefined if this gateway cannot be replaced. */
  readonly replace?: () => Promise<Replaced>
  /** Undefined if live recalibration is off. */
  readonly adapt?: AdaptControl
}

/** Live recalibration. */
export interface AdaptControl {
  view(): AdaptView
  /** Swaps to what was suggested. */
  swap(): Promise<AdaptResult>
  /** Returns to the artifact before the swap in force. */
  undo(): Promise<AdaptResult>
}

export type AdaptResult = { readonly kind: 'ok' } | { readonly kind: 'refused'; readonly why: string }

/** Looks a request up in the other processes. */
export interface RequestLookup {
  request(id: string): Promise<readonly SeenRequest[]>
}

export interface SeenRequest {
  readonly live: readonly { readonly path?: string; readonly seconds: number }[]
  readonly story?: StoryView
}

export interface LoadedMore {
  /** The artifact's bytes if the client uploaded it, so that it has no path. */
  readonly sent?: Buffer
  /** Of live recalibration, after it returned to this artifact (default: the load ends a hold). */
  readonly hold?: AdaptHold
}

/** The other gateways, which the admin API tells about each change made here. */
export interface ReplicaUpdates {
  status(): ReplicaStatus
  changedPolicy(change: Parameters<RoutingControl['setPolicy']>[0]): void
  /** Does not block. */
  loadedArtifact(view: RoutingView, path: string, more?: LoadedMore): void
  /** Bytes of an artifact that a gateway has shared; undefined if the store lacks them. */
  fetchArtifact(sha256: string): Promise<Buffer | undefined>
  refitted(view: RoutingView): void
  drained(worker: string, drained: boolean): void
}
