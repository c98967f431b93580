/**
 * Messages between the supervisor and its processes on Node's IPC channel. `connection` carries the client's
 * socket.
 */
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
  /** Running relays, which will declare their requests. */
  readonly relays: readonly number[]
}

export interface RelayStart {
  readonly kind: 'start'
  readonly settings: Settings
  readonly folder: string
  readonly relay: number
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
  | { readonly kind: 'died'; readonly relay: number }
  | { readonly kind: 'drain' | 'stop' | 'toggleDebug' }
/** `left`: no connection follows. */
export type ToRelay =
  | RelayStart
  | Ping
  | { readonly kind: 'stop' | 'left' }
  | { readonly kind: 'connection'; readonly connection: number }
export type FromChild =
  | { readonly kind: 'ready' }
  | { readonly kind: 'pong'; readonly ping: number }
  /** The relay wants no more connections. Answered with `left`. */
  | { readonly kind: 'leaving' }
  | { readonly kind: 'taken'; readonly connection: number }
  | { readonly kind: 'failed'; readonly failure: ThreadResult }
  | { readonly kind: 'saved'; readonly saved: SavedState }

export const ownerPath = (folder: string): string => join(folder, 'owner')
export const pagesPath = (folder: string): string => join(folder, 'pages')
export const relayPath = (folder: string, relay: number): string => join(folder, `relay-${relay}`)

export function tellSupervisor(message: FromChild): void {
  if (process.connected) process.send!(message)
}

/**
 * Runs a child process: waits for its start message, runs it, and reports `ready` or the reason for failure.
 */
export async function runAsMember<Start>(run: (start: Start) => Promise<void>): Promise<void> {
  const start = await startMessage<Start>()
  try {
    await run(start)
    tellSupervisor({ kind: 'ready' })
  } catch (error) {
    tellSupervisor({ kind: 'failed', failure: failureResult(error) })
    process.disconnect()
  }
}

/** The first message. A process without its supervisor has no purpose, so it exits on disconnect. */
function startMessage<Start>(): Promise<Start> {
  process.on('disconnect', () => process.exit(0))
  process.on('message', (message: Ping | { readonly kind: 'start' }) => {
    if (message.kind === 'ping') tellSupervisor({ kind: 'pong', ping: message.ping })
  })
  return new Promise(resolve => process.once('message', (start: Start) => resolve(start)))
}
