/**
 * Time that shadow policies may take: a share of the wall time, so that the cost is bounded whatever the
 * policies, the model and the rate. A phase of work may overdraw the account; the next one then waits until
 * the debt is paid.
 */
export interface CpuBudgetOptions {
  /** Of one core. */
  readonly share?: number
  readonly nowMs?: () => number
}

/** At 1,000 requests per second a gateway uses a quarter of a core or more: less than a tenth of that. */
const SHARE = 0.02
/** Earned by 5 seconds of rest; a phase starts with half of it. */
const MAX_BALANCE_MS = 100

export class CpuBudget {
  readonly #share: number
  readonly #nowMs: () => number
  #balanceMs = MAX_BALANCE_MS
  #sinceMs: number

  constructor({ share = SHARE, nowMs = () => performance.now() }: CpuBudgetOptions = {}) {
    this.#share = share
    this.#nowMs = nowMs
    this.#sinceMs = nowMs()
  }

  /** Runs the work and charges its time. */
  charge<T>(work: () => T): T {
    const fromMs = this.#nowMs()
    try {
      return work()
    } finally {
      this.#earn()
      this.#balanceMs -= this.#nowMs() - fromMs
    }
  }

  get isSpent(): boolean {
    this.#earn()
    return this.#balanceMs < 0
  }

  /** Enough for a new phase of work. */
  get isRested(): boolean {
    this.#earn()
    return this.#balanceMs >= MAX_BALANCE_MS / 2
  }

  #earn(): void {
    const nowMs = this.#nowMs()
    this.#balanceMs = Math.min(MAX_BALANCE_MS, this.#balanceMs + this.#share * (nowMs - this.#sinceMs))
    this.#sinceMs = nowMs
  }
}
