/**
 * How a running gateway and its successor talk. The first process of `eldr serve` starts every successor as
 * its child and talks to it on Node's IPC channel; `serve` and `handed` carry the listening socket.
 */
import type { WorkerSpec } from '../../../cluster/worker.ts'
import { configuredWorkers } from '../../config/configured-workers.ts'
import type { LogLevel, RoutingSettings, Settings } from '../../config/settings.ts'
import type { ListenHandle } from '../../http/listen.ts'
import type { ThreadResult } from '../../routing/thread-result.ts'
import type { SavedState } from '../processes/saved-state.ts'

/** The settings that admin changes override, as the configuration had them. */
export interface Configured {
  readonly host: string
  readonly port: number
  readonly metricsPort?: number
  readonly logLevel: LogLevel
  readonly workers: readonly WorkerSpec[]
  readonly routing: Pick<RoutingSettings, 'policy' | 'tau' | 'prefillPolicy' | 'artifact'>
}

/** What a gateway hands to its successor, besides its socket. */
export interface Handed {
  readonly configured: Configured
  /** The port that it listens on, if the configured one is 0. */
  readonly port: number
  readonly saved: SavedState
  /** Relays that continue for now. By `id`. */
  readonly relays: readonly number[]
  /** The largest `id` of a relay so far. */
  readonly lastRelay: number
}

/** Where a gateway takes the tickets of other processes. */
export interface OwnerAddress {
  readonly path: string
  readonly protocol: number
}

/** The command that starts a successor. */
export interface Command {
  readonly node: string
  readonly nodeArgs: readonly string[]
  readonly program: string
  readonly args: readonly string[]
  readonly folder: string
  readonly env: Readonly<Record<string, string | undefined>>
}

/** The new process. */
export interface Successor {
  readonly pid: number
  readonly version: string
}

/** A gateway that can be replaced, in this process or in a child. */
export interface Replaceable {
  /** Holds admin changes back and returns the state. */
  handOut(): Promise<{ readonly handed: Handed; readonly listener: ListenHandle }>
  /** Lets the successor count and place the requests that run here. */
  declareTo(owner: OwnerAddress): Promise<void>
  /** The successor has failed: continues as before. */
  takeBack(): void
  /** Accepts no connection from now on. Resolves when the last request has ended. */
  leave(): Promise<void>
}

export type ToSuccessor =
  | { readonly kind: 'start'; readonly handed: Handed; readonly folder: string }
  | { readonly kind: 'serve' | 'handOut' | 'takeBack' | 'leave' }
  | { readonly kind: 'declare'; readonly owner: OwnerAddress }
  | { readonly kind: 'replaced'; readonly id: number; readonly outcome: ThreadResult }

export type FromSuccessor =
  /** The configuration is valid. Answered with `start`. */
  | { readonly kind: 'checked' }
  /** Everything but the port is open. Answered with `serve`. */
  | { readonly kind: 'prepared'; readonly owner: OwnerAddress; readonly readyMs: number }
  | { readonly kind: 'serving'; readonly version: string; readonly url: string }
  | { readonly kind: 'failed'; readonly failure: ThreadResult }
  | { readonly kind: 'handed'; readonly handed: Handed }
  | { readonly kind: 'declared' }
  /** A client of the admin API asks for a replacement. Answered with `replaced`. */
  | { readonly kind: 'replace'; readonly id: number }

/** Set in the environment of a successor. */
export const SUCCESSOR_VARIABLE = 'ELDR_SUCCESSOR'

/** The port in the URL of a gateway. */
export function portOf(url: string): number {
  return Number(url.slice(url.lastIndexOf(':') + 1))
}

export function configuredBy(settings: Settings): Configured {
  const { policy, tau, prefillPolicy, artifact } = settings.routing
  const { host, port, metricsPort } = settings.server
  return {
    host,
    port,
    metricsPort,
    logLevel: settings.observe.logLevel,
    workers: configuredWorkers(settings),
    routing: { policy, tau, prefillPolicy, artifact },
  }
}
