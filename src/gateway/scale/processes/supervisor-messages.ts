/**
 * Messages between the supervisor and its processes on Node's IPC channel. `connection` carries the client's
 * socket.
 */
import type { Socket } from 'node:net'
import { join } from 'node:path'
import type { Settings } from '../../config/settings.ts'
import { failureResult, type ThreadResult } from '../../routing/thread-result.ts'
import type { SavedState } from './saved-state.ts'

export interface OwnerStart {
  readonly kind: 'start'
  readonly settings: Settings
  /** Private folder of this gateway: sockets and copies of artifacts. */
  readonly folder: string
  readonly saved: SavedState
  /** Running relays, which will declare their requests. By `id`. */
  readonly relays: readonly number[]
  /** Relays of the gateway that this one replaces, which will declare theirs later. */
  readonly old: readonly number[]
  /** The metrics port is not free yet: `openMetrics` follows. */
  readonly takesOver: boolean
  /** URL of the module of live recalibration. */
  readonly adaptation?: string
}

export interface RelayStart {
  readonly kind: 'start'
  readonly settings: Settings
  readonly folder: string
  /** 1 for `relay-1`. */
  readonly relay: number
  /**
   * Of this process: the one that replaces it has another, so that an owner that missed the change does not
   * take the counts of one for those of the other.
   */
  readonly id: number
}

/**
 * Answered with `pong` after everything sent before it: a connection that is not `taken` by then was lost.
 */
export interface Ping {
  readonly kind: 'ping'
  readonly ping: number
}

export type ToOwner =
  | OwnerStart
  | Ping
  | { readonly kind: 'died'; readonly id: number }
  | { readonly kind: 'drain' | 'stop' | 'toggleDebug' }
  /** The steps of a replacement, on the side of the gateway before. Answered with `done` or not at all. */
  | { readonly kind: OwnerStep | 'takeBack' | 'leave' }
  | { readonly kind: 'replaced'; readonly id: number; readonly outcome: ThreadResult }
/** `left`: no connection follows. */
export type ToRelay =
  | RelayStart
  | Ping
  | { readonly kind: 'stop' }
  | { readonly kind: 'left'; readonly graceMs: number }
  /** Another owner decides. Answered with `done`. */
  | { readonly kind: 'move'; readonly owner: string }
  | { readonly kind: 'connection'; readonly connection: number }
export type FromChild =
  | { readonly kind: 'ready' }
  | { readonly kind: 'pong'; readonly ping: number }
  /** The relay wants no more connections. Answered with `left`. */
  | { readonly kind: 'leaving' }
  | { readonly kind: 'taken'; readonly connection: number }
  | { readonly kind: 'done'; readonly step: Step; readonly failure?: ThreadResult }
  /** A client of the admin API asks for a replacement. Answered with `replaced`. */
  | { readonly kind: 'replace'; readonly id: number }
  | { readonly kind: 'failed'; readonly failure: ThreadResult }
  | { readonly kind: 'saved'; readonly saved: SavedState }

/**
 * `handOut`: admin changes are held back. `declare`: relays move to another owner, which needs the metrics
 * port. `openMetrics`: that port is free.
 */
export type OwnerStep = 'handOut' | 'declare' | 'openMetrics'
export type Step = OwnerStep | 'move'

export const ownerPath = (folder: string): string => join(folder, 'owner')
export const pagesPath = (folder: string): string => join(folder, 'pages')
export const relayPath = (folder: string, relay: number): string => join(folder, `relay-${relay}`)

export function tellSupervisor(message: FromChild): void {
  if (process.connected) process.send!(message)
}

/**
 * Runs a child process: waits for its start message, runs it, and reports `ready` or the reason for failure.
 */
export async function runAsMember<Start>(run: (start: Start, inbox: Inbox) => Promise<void>): Promise<void> {
  process.on('disconnect', () => process.exit(0)) // without its supervisor it has no purpose
  const inbox = new Inbox(process)
  try {
    await run((await inbox.start) as Start, inbox)
    tellSupervisor({ kind: 'ready' })
  } catch (error) {
    tellSupervisor({ kind: 'failed', failure: failureResult(error) })
    process.disconnect()
  }
}

type Listener = (message: ToOwner | ToRelay, socket?: Socket) => void

/**
 * Messages of the supervisor. Those that arrive before there is a listener wait for it: a process that is
 * still loading reads several at once, the first of which starts it.
 */
export class Inbox {
  readonly start: Promise<OwnerStart | RelayStart>
  readonly #early: Parameters<Listener>[] = []
  #listener: Listener = (...message) => this.#early.push(message)

  constructor(channel: { on(event: 'message', listener: Listener): unknown }) {
    this.start = new Promise(resolve =>
      channel.on('message', (message, socket) => {
        if (message.kind === 'start') resolve(message)
        else if (message.kind === 'ping') tellSupervisor({ kind: 'pong', ping: message.ping })
        else this.#listener(message, socket)
      }),
    )
  }

  listen(listener: Listener): void {
    this.#listener = listener
    for (const message of this.#early.splice(0)) listener(...message)
  }
}
