/** Exponential backoff with jitter, so that many gateways do not retry at the same time. */
const MAX_DELAY_MS = 30_000
/** Delays are shortened by up to this share. */
const JITTER = 0.5

export class BackOff {
  readonly #firstMs: number
  readonly #maxMs: number
  readonly #random: () => number
  #failures = 0

  constructor(firstMs: number, random: () => number = Math.random, maxMs: number = MAX_DELAY_MS) {
    this.#firstMs = firstMs
    this.#maxMs = maxMs
    this.#random = random
  }

  /** Delay after one more failure. */
  nextMs(): number {
    const fullMs = Math.min(
      Math.max(this.#maxMs, this.#firstMs),
      this.#firstMs * 2 ** Math.min(this.#failures++, 20),
    )
    return fullMs * (1 - JITTER * this.#random())
  }

  reset(): void {
    this.#failures = 0
  }
}

/** Resolves after `ms`, or as soon as the signal fires. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) return resolve()
    const done = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms).unref()
    signal.addEventListener('abort', done, { once: true })
  })
}
