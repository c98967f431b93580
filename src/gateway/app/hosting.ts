/** Hooks of a gateway that decides for other processes, or continues the work of another one. */
import type { IncomingMessage } from 'node:http'
import type { Registry } from '../../cluster/registry.ts'
import type { RequestLookup } from '../control/admin/admin-context.ts'
import type { SourceMemory, SourceName } from '../discovery/source.ts'
import type { RoutingChange } from '../routing/routing-control.ts'
import type { ReplicaMemory } from '../scale/replicas/replicas.ts'

/** Of a gateway that serves the requests of other processes (`scale/processes/`). */
export interface Hosting {
  /** Socket path to listen on, in place of the configured address. */
  readonly path: string
  /** Called with every request before it is handled. */
  arriving(request: IncomingMessage): void
  /** Requests that other processes serve. */
  readonly elsewhere: RequestLookup
}

/** State that outlives the process. */
export interface Continuity {
  /** In place of the configured workers. */
  readonly addWorkers?: (registry: Registry) => void
  /** Called after every artifact load while the gateway runs. */
  artifactLoaded(path: string, shownAs: string): Promise<void>
  /** Name of the configured artifact for people, if its file is a copy. */
  readonly artifactShownAs?: string
  /** Memory of a discovery source that outlives this process. */
  memoryOf(source: SourceName): SourceMemory
  /** Changes that wait for the replicas' store. */
  readonly replicaMemory: ReplicaMemory
  levelChanged(): void
  routingChanged(change: RoutingChange): void
}
