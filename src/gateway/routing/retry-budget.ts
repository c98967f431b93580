/**
 * Retries as a share of requests. While workers fail now and then there is always a retry to spare; in an
 * outage retries end instead of multiplying the load on the remaining workers.
 */
const MAX_SAVED = 20

/**
 * Resumed streams per request. A worker that dies breaks all its streams at once, so every request saves for
 * one of its own; streams that break again and again end instead of keeping the remaining workers busy.
 */
const RESUMED_SHARE = 1
const MAX_SAVED_RESUMED = 10_000

export const resumeBudget = (): RetryBudget => new RetryBudget(RESUMED_SHARE, MAX_SAVED_RESUMED)

export class RetryBudget {
  readonly #share: number
  readonly #maxSaved: number
  #saved = MAX_SAVED / 2

  constructor(share: number, maxSaved = MAX_SAVED) {
    this.#share = share
    this.#maxSaved = maxSaved
  }

  requestCame(): void {
    this.#saved = Math.min(this.#maxSaved, this.#saved + this.#share)
  }

  /** Retries available now. */
  get left(): number {
    return Math.floor(this.#saved)
  }

  /** Takes one retry, if there is one. */
  take(): boolean {
    if (this.#saved < 1) return false
    this.#saved--
    return true
  }
}
