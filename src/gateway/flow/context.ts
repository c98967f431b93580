/** What all requests of a process share. */
import type { Settings } from '../config/settings.ts'
import type { EngineAdapter } from '../engines/engine.ts'
import type { Log } from '../observe/log/log.ts'
import type { RequestObserver } from '../observe/request-observer.ts'
import type { LostWorkers } from '../routing/lost-workers.ts'
import type { PlacementClient } from '../routing/placement-client.ts'
import type { Upstreams } from '../upstream/upstreams.ts'

export interface FlowContext {
  readonly settings: Settings
  readonly placement: PlacementClient
  readonly upstreams: Upstreams
  readonly engine: EngineAdapter
  readonly observers: readonly RequestObserver[]
  readonly lost: Pick<LostWorkers, 'of'>
  readonly log: Log
}
