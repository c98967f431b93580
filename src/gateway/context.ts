/** What every request of a gateway shares. */
import type { Registry } from '../cluster/registry.ts'
import type { HealthLoop } from '../cluster/health.ts'
import type { RestartWatch } from '../cluster/restart-watch.ts'
import type { Settings } from './config/settings.ts'
import type { NoteWorker } from './debug-headers.ts'
import type { Insight } from './dashboard/insight.ts'
import type { EngineAdapter } from './engine/engine.ts'
import type { Log, Seldom } from './log.ts'
import type { LogLevelControl } from './log-level.ts'
import type { LostWorkers } from './lost-workers.ts'
import type { Metrics } from './metrics.ts'
import type { RetryBudget } from './retry-budget.ts'
import type { Router } from './routing/router.ts'
import type { Tracer } from './tracing/tracer.ts'
import type { Upstreams } from './upstream/upstreams.ts'

export interface GatewayContext {
  readonly settings: Settings
  readonly registry: Registry
  readonly router: Router
  readonly upstreams: Upstreams
  readonly engine: EngineAdapter
  readonly metrics: Metrics
  readonly budget: RetryBudget
  readonly health: Pick<HealthLoop, 'passiveFailure'>
  readonly restarts: Pick<RestartWatch, 'sawEngineId'>
  readonly lost: LostWorkers
  readonly noteWorker: NoteWorker
  readonly insight: Insight
  /** Absent where traces are off. */
  readonly tracer: Tracer | undefined
  readonly log: Log
  readonly logLevel: LogLevelControl
  readonly seldom: Seldom
}
