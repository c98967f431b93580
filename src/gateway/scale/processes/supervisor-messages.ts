/** What the supervisor and its processes say to each other, by Node's own channel. Connections of clients travel beside `connection`. */
import { join } from 'node:path'
import type { Settings } from '../../config/settings.ts'
import { failureResult, type ThreadResult } from '../../routing/thread-result.ts'
import type { SavedState } from './saved-state.ts'

export interface OwnerStart {
  readonly kind: 'start'
  readonly settings: Settings
  /** Private to this gateway: sockets, and artifacts that were sent. */
  readonly folder: string
  readonly saved: SavedState
  /** Relays that run, and will say what they have. */
  readonly relays: readonly number[]
}

export interface RelayStart {
  readonly kind: 'start'
  readonly settings: Settings
  readonly folder: string
  readonly relay: number
}

/** Answered by `pong`, after all that was sent before it: a connection that has not been taken by then has not come. */
export interface Ping {
  readonly kind: 'ping'
  readonly ping: number
}

export type ToOwner =
  | OwnerStart
  | Ping
  | { readonly kind: 'died'; readonly relay: number }
  | { readonly kind: 'drain' | 'stop' | 'toggleDebug' }
/** `left`: no connection comes after it. */
export type ToRelay =
  | RelayStart
  | Ping
  | { readonly kind: 'stop' | 'left' }
  | { readonly kind: 'connection'; readonly connection: number }
export type FromChild =
  | { readonly kind: 'ready' }
  | { readonly kind: 'pong'; readonly ping: number }
  /** It wants no more connections, and is answered `left`. */
  | { readonly kind: 'leaving' }
  | { readonly kind: 'taken'; readonly connection: number }
  | { readonly kind: 'failed'; readonly failure: ThreadResult }
  | { readonly kind: 'saved'; readonly saved: SavedState }

export const deskPath = (folder: string): string => join(folder, 'desk')
export const pagesPath = (folder: string): string => join(folder, 'pages')
export const relayPath = (folder: string, relay: number): string => join(folder, `relay-${relay}`)

export function tellSupervisor(message: FromChild): void {
  if (process.connected) process.send!(message)
}

/** A program's whole life: told what to be, it says that it is ready, or why it cannot begin. */
export async function runAsMember<Start>(run: (start: Start) => Promise<void>): Promise<void> {
  const start = await started<Start>()
  try {
    await run(start)
    tellSupervisor({ kind: 'ready' })
  } catch (error) {
    tellSupervisor({ kind: 'failed', failure: failureResult(error) })
    process.disconnect()
  }
}

/** The first message. Whoever is started has nothing to do without the one who started it: when that is gone, it goes too. */
function started<Start>(): Promise<Start> {
  process.on('disconnect', () => process.exit(0))
  process.on('message', (message: Ping | { readonly kind: 'start' }) => {
    if (message.kind === 'ping') tellSupervisor({ kind: 'pong', ping: message.ping })
  })
  return new Promise(resolve => process.once('message', (start: Start) => resolve(start)))
}
