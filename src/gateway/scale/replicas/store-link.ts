/** Keeps a session with the store and reconnects with back-off. No request waits for it. */
import { BackOff, pause } from '../../discovery/back-off.ts'
import { openSession, type StoreAddress, type StoreSession } from './store-session.ts'

export interface LinkOptions extends StoreAddress {
  /** First delay after a failure. It doubles each time, with jitter. */
  readonly retryMs: number
  readonly received: (bytes: Buffer) => void
  /** Connected. */
  readonly up: () => void
  /** Disconnected, or failed to connect. */
  readonly down: (reason: string) => void
}

/** Upper bound of the delay. */
const MAX_RETRY_MS = 5_000

export class StoreLink {
  readonly #options: LinkOptions
  readonly #abort = new AbortController()
  readonly #closed: Promise<void>
  #session: StoreSession | undefined

  constructor(options: LinkOptions) {
    this.#options = options
    this.#closed = this.#run()
  }

  get up(): boolean {
    return this.#session !== undefined
  }

  /** Rejects immediately if there is no session. */
  ask(command: readonly (string | Buffer)[]): Promise<unknown> {
    return this.#session?.ask(command) ?? Promise.reject(new Error('the store is unreachable'))
  }

  /** Ends the session, so that a new one is opened. */
  drop(reason: string): void {
    this.#session?.end(reason)
  }

  async close(): Promise<void> {
    this.#abort.abort()
    await this.#closed
  }

  async #run(): Promise<void> {
    const { signal } = this.#abort
    const backOff = new BackOff(this.#options.retryMs, Math.random, MAX_RETRY_MS)
    while (!signal.aborted) {
      let reason: string
      try {
        const session = await openSession(this.#options, this.#options.received, signal)
        this.#session = session
        backOff.reset()
        this.#options.up()
        reason = await session.ended
      } catch (error) {
        reason = error instanceof Error ? error.message : String(error)
      }
      this.#session = undefined
      if (signal.aborted) return
      this.#options.down(reason)
      await pause(backOff.nextMs(), signal)
    }
  }
}
