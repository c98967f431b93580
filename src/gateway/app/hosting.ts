/** A gateway that decides for other processes, which have the requests (`processes/`). */
import type { IncomingMessage } from 'node:http'
import type { Registry } from '../../cluster/registry.ts'
import type { RequestLookup } from '../control/admin/admin-context.ts'
import type { SourceMemory, SourceName } from '../discovery/source.ts'
import type { RoutingChange } from '../routing/routing-control.ts'

/** What is otherwise where requests come to other processes (`processes/`), and this one decides for them. */
export interface Hosting {
  /** In place of the settings' address. */
  readonly path: string
  /** Every request, before it is looked at. */
  arriving(request: IncomingMessage): void
  /** In place of the settings' workers. */
  readonly addWorkers?: (registry: Registry) => void
  readonly elsewhere: RequestLookup
  /** Of every artifact that is loaded while the gateway runs, whoever had it loaded. */
  artifactLoaded(path: string, shownAs: string): Promise<void>
  /** The name of the settings' artifact, where its file is a copy. */
  readonly artifactShownAs?: string
  /** What discovery is to remember, and what it remembered before. */
  memoryOf(source: SourceName): SourceMemory
  levelChanged(): void
  routingChanged(change: RoutingChange): void
}
