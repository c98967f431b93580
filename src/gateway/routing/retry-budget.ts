/**
 * Retries as a share of requests. While workers fail now and then there is always a retry to spare; in an
 * outage retries end instead of multiplying the load on the remaining workers.
 */
const MAX_SAVED = 20

export class RetryBudget {
  readonly #share: number
  #saved = MAX_SAVED / 2

  constructor(share: number) {
    this.#share = share
  }

  requestCame(): void {
    this.#saved = Math.min(MAX_SAVED, this.#saved + this.#share)
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
