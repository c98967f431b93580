/** A gateway that decides for other processes, which have the requests (`processes/`). */
import type { IncomingMessage } from 'node:http'
import type { Registry } from '../cluster/registry.ts'
import type { LookElsewhere } from './admin/routes.ts'
import type { KeptArtifacts } from './routing/artifact-file.ts'
import type { RoutingChange } from './routing/routing-control.ts'

/** What is otherwise where requests come to other processes (`processes/`), and this one decides for them. */
export interface Hosting {
  /** In place of the settings' address. */
  readonly path: string
  /** Every request, before it is looked at. */
  arriving(request: IncomingMessage): void
  /** In place of the settings' workers. */
  readonly addWorkers?: (registry: Registry) => void
  readonly elsewhere: LookElsewhere
  readonly artifacts: KeptArtifacts
  levelChanged(): void
  routingChanged(change: RoutingChange): void
}
