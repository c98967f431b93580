/** Waits that grow while something fails, and vary so that many gateways do not all come back at once. */
const LONGEST_MS = 30_000
/** Waits are shortened by up to this share. */
const JITTER = 0.5

export class BackOff {
  readonly #firstMs: number
  readonly #longestMs: number
  readonly #random: () => number
  #failures = 0

  constructor(firstMs: number, random: () => number = Math.random, longestMs: number = LONGEST_MS) {
    this.#firstMs = firstMs
    this.#longestMs = longestMs
    this.#random = random
  }

  /** How long to wait after one more failure. */
  nextMs(): number {
    const fullMs = Math.min(
      Math.max(this.#longestMs, this.#firstMs),
      this.#firstMs * 2 ** Math.min(this.#failures++, 20),
    )
    return fullMs * (1 - JITTER * this.#random())
  }

  reset(): void {
    this.#failures = 0
  }
}

/** Resolves early, and not at all late, when the signal fires. */
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
