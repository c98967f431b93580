/**
 * When this replica speaks: `publishMs` after something has changed, and before its lease ends if nothing has. One message is under way at a
 * time, so that a slow store gets fewer and not more of them; each has all loads as they are when it goes, so nothing is lost by waiting.
 * Rows of `union` go along every `rowsMs`, or more rateLimitedLog where they would be more than `bytesPerSecond`.
 */
import type { LoadEntry, RowEntry } from './messages.ts'

export interface Speech {
  readonly loads: readonly LoadEntry[]
  readonly cells: number
  readonly whole: boolean
  readonly rows: readonly RowEntry[]
}

export interface PublisherOptions {
  readonly publishMs: number
  readonly rowsMs: number
  readonly leaseMs: number
  readonly bytesPerSecond: number
  readonly nowMs: () => number
  readonly loads: () => LoadEntry[]
  readonly cells: () => number
  readonly rows: (whole: boolean) => RowEntry[]
  /** Resolves with its bytes when the store has it; undefined when it has not. Never rejects. */
  readonly send: (speech: Speech) => Promise<number | undefined>
}

/** A lease is renewed so many times before it ends. */
export const RENEWALS = 3

export class Publisher {
  readonly #options: PublisherOptions
  #soon: NodeJS.Timeout | undefined
  #renewal: NodeJS.Timeout | undefined
  #sending = false
  #wanted = false
  #whole = false
  #rowsDueMs = 0
  #running = false

  constructor(options: PublisherOptions) {
    this.#options = options
  }

  /** The store can be reached: everything is told anew. */
  start(): void {
    this.#running = true
    this.tellAll()
  }

  stop(): void {
    this.#running = false
    clearTimeout(this.#soon)
    clearTimeout(this.#renewal)
    this.#soon = undefined
  }

  /** Something has changed. On the way of every request, so it does next to nothing. */
  touch(): void {
    if (this.#soon !== undefined || !this.#running) return
    this.#soon = setTimeout(() => this.#due(), this.#options.publishMs).unref()
  }

  /** Somebody has missed rows. */
  tellAll(): void {
    this.#whole = true
    this.touch()
  }

  #due(): void {
    this.#soon = undefined
    if (this.#sending) this.#wanted = true
    else void this.#speak()
  }

  async #speak(): Promise<void> {
    const { nowMs, leaseMs, loads, cells, send } = this.#options
    this.#sending = true
    clearTimeout(this.#renewal)
    const rows = this.#rows(nowMs())
    const bytes = await send({ loads: loads(), cells: cells(), ...rows })
    // Of what was not taken nobody knows which rows got there.
    if (bytes === undefined) this.#whole = true
    else if (rows.rows.length > 0) this.#pace(nowMs(), bytes)
    this.#sending = false
    if (!this.#running) return
    this.#renewal = setTimeout(() => this.#due(), leaseMs / RENEWALS).unref()
    if (this.#wanted) {
      this.#wanted = false
      this.touch()
    }
  }

  #rows(nowMs: number): Pick<Speech, 'whole' | 'rows'> {
    const { cells, rows } = this.#options
    if (cells() === 0) {
      this.#whole = false
      return { whole: true, rows: [] }
    }
    if (nowMs < this.#rowsDueMs) {
      this.#wanted = true // they have to go out even if nothing else changes
      return { whole: false, rows: [] }
    }
    const whole = this.#whole
    this.#whole = false
    return { whole, rows: rows(whole) }
  }

  #pace(nowMs: number, bytes: number): void {
    const { rowsMs, bytesPerSecond } = this.#options
    this.#rowsDueMs = nowMs + Math.max(rowsMs, (1000 * bytes) / bytesPerSecond)
  }
}
