/** What every request of a gateway shares. */
import type { Registry } from '../../cluster/registry.ts'
import type { HealthLoop } from '../../cluster/health.ts'
import type { RestartWatch } from '../../cluster/restart-watch.ts'
import type { Settings } from '../config/settings.ts'
import type { NoteWorker } from '../observe/debug-headers.ts'
import type { Insight } from '../observe/insight/insight.ts'
import type { EngineAdapter } from '../engines/engine.ts'
import type { Log, RateLimitedLog } from '../observe/log/log.ts'
import type { LogLevelControl } from '../observe/log/log-level.ts'
import type { LostWorkers } from '../routing/lost-workers.ts'
import type { Metrics } from '../observe/metrics/metrics.ts'
import type { PlacementClient } from '../routing/placement-client.ts'
import type { RetryBudget } from '../routing/retry-budget.ts'
import type { Router } from '../routing/router.ts'
import type { Tracer } from '../observe/tracing/tracer.ts'
import type { Upstreams } from '../upstream/upstreams.ts'

/** All that a request needs, whichever process it is in. */
export interface RequestContext {
  readonly settings: Settings
  readonly placement: PlacementClient
  readonly upstreams: Upstreams
  readonly engine: EngineAdapter
  readonly metrics: Metrics
  readonly health: Pick<HealthLoop, 'passiveFailure'>
  readonly restarts: Pick<RestartWatch, 'sawEngineId'>
  readonly lost: Pick<LostWorkers, 'of'>
  readonly noteWorker: NoteWorker
  readonly insight: RequestInsight
  /** Absent where traces are off. */
  readonly tracer: Tracer | undefined
  readonly log: Log
  readonly rateLimitedLog: RateLimitedLog
}

/** What is told of requests for people to see. */
export type RequestInsight = Pick<Insight, 'begun' | 'decided' | 'ended'> & {
  readonly pace: Pick<Insight['pace'], 'firstByte' | 'stream' | 'onWorker'>
}

/** And what decides where they go. */
export interface GatewayContext extends RequestContext {
  readonly registry: Registry
  readonly router: Router
  readonly budget: RetryBudget
  readonly insight: Insight
  readonly logLevel: LogLevelControl
}
