/** Keeps a session with the store: opens it, opens another when it has ended, ever more patiently. Nobody waits for it. */
import { BackOff, pause } from '../../discovery/back-off.ts'
import { openSession, type StoreAddress, type StoreSession } from './store-session.ts'

export interface LinkOptions extends StoreAddress {
  /** Wait after a failure, doubled each time, varied by chance. */
  readonly retryMs: number
  readonly heard: (bytes: Buffer) => void
  /** It can be asked from now on. */
  readonly up: () => void
  /** It cannot any more, or still not. */
  readonly down: (reason: string) => void
}

/** So soon a store that has come back is found, at the latest. */
const LONGEST_RETRY_MS = 5_000

export class StoreLink {
  readonly #options: LinkOptions
  readonly #abort = new AbortController()
  readonly #over: Promise<void>
  #session: StoreSession | undefined

  constructor(options: LinkOptions) {
    this.#options = options
    this.#over = this.#keep()
  }

  get up(): boolean {
    return this.#session !== undefined
  }

  /** Rejects at once where there is no session. */
  ask(command: readonly (string | Buffer)[]): Promise<unknown> {
    return this.#session?.ask(command) ?? Promise.reject(new Error('the store cannot be reached'))
  }

  /** The session is of no use: take another. */
  drop(reason: string): void {
    this.#session?.end(reason)
  }

  async close(): Promise<void> {
    this.#abort.abort()
    await this.#over
  }

  async #keep(): Promise<void> {
    const { signal } = this.#abort
    const backOff = new BackOff(this.#options.retryMs, Math.random, LONGEST_RETRY_MS)
    while (!signal.aborted) {
      let reason: string
      try {
        const session = await openSession(this.#options, this.#options.heard, signal)
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
