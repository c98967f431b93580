/**
 * When this replica publishes: `publishMs` after a change, and before its lease ends if there is none. Only
 * one message is in flight at a time, so a slow store gets fewer of them; each has all current loads, so
 * nothing is lost by waiting. Rows of `union` are included every `rowsMs`, or less often if they would exceed
 * `bytesPerSecond`.
 */
import type { LoadEntry, RowEntry } from './messages.ts'

export interface Publication {
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
  /** Resolves with the number of bytes, or undefined if the store did not accept it. Never rejects. */
  readonly send: (publication: Publication) => Promise<number | undefined>
}

/** Renewals within a lease. */
export const RENEWALS = 3

export class Publisher {
  readonly #options: PublisherOptions
  #publishTimer: NodeJS.Timeout | undefined
  #renewalTimer: NodeJS.Timeout | undefined
  #sending = false
  /** Publish again after the message in flight. */
  #requested = false
  #whole = false
  #rowsDueMs = 0
  #running = false

  constructor(options: PublisherOptions) {
    this.#options = options
  }

  /** The store is reachable: publishes everything. */
  start(): void {
    this.#running = true
    this.publishAll()
  }

  stop(): void {
    this.#running = false
    clearTimeout(this.#publishTimer)
    clearTimeout(this.#renewalTimer)
    this.#publishTimer = undefined
  }

  /** Something has changed. Called for every request, so it must be cheap. */
  touch(): void {
    if (this.#publishTimer !== undefined || !this.#running) return
    this.#publishTimer = setTimeout(() => this.#due(), this.#options.publishMs).unref()
  }

  /** Publishes all rows, because a replica has missed some. */
  publishAll(): void {
    this.#whole = true
    this.touch()
  }

  #due(): void {
    this.#publishTimer = undefined
    if (this.#sending) this.#requested = true
    else void this.#publish()
  }

  async #publish(): Promise<void> {
    const { nowMs, leaseMs, loads, cells, send } = this.#options
    this.#sending = true
    clearTimeout(this.#renewalTimer)
    const rows = this.#rows(nowMs())
    const bytes = await send({ loads: loads(), cells: cells(), ...rows })
    // After a failure it is unknown which rows arrived.
    if (bytes === undefined) this.#whole = true
    else if (rows.rows.length > 0) this.#delayRows(nowMs(), bytes)
    this.#sending = false
    if (!this.#running) return
    this.#renewalTimer = setTimeout(() => this.#due(), leaseMs / RENEWALS).unref()
    if (this.#requested) {
      this.#requested = false
      this.touch()
    }
  }

  #rows(nowMs: number): Pick<Publication, 'whole' | 'rows'> {
    const { cells, rows } = this.#options
    if (cells() === 0) {
      this.#whole = false
      return { whole: true, rows: [] }
    }
    if (nowMs < this.#rowsDueMs) {
      this.#requested = true // rows must be published even if nothing else changes
      return { whole: false, rows: [] }
    }
    const whole = this.#whole
    this.#whole = false
    return { whole, rows: rows(whole) }
  }

  #delayRows(nowMs: number, bytes: number): void {
    const { rowsMs, bytesPerSecond } = this.#options
    this.#rowsDueMs = nowMs + Math.max(rowsMs, (1000 * bytes) / bytesPerSecond)
  }
}
