/** Timers, injected so that tests can control time. */
export interface Timers {
  /** @returns a function that cancels it. */
  after(delayMs: number, run: () => void): () => void
}

/** Node's own timers; they do not keep the process alive. */
export const NODE_TIMERS: Timers = {
  after(delayMs, run) {
    const timer = setTimeout(run, delayMs).unref()
    return () => clearTimeout(timer)
  },
}

export interface HealthLimits {
  readonly intervalMs: number
  readonly timeoutMs: number
  /**
   * Consecutive checks that mark a worker unhealthy, and healthy again. The first check of a worker decides
   * alone.
   */
  readonly failures: number
  readonly successes: number
}

export interface HealthLoopOptions {
  readonly limits: HealthLimits
  /**
   * One check. True if the worker is healthy; a rejection is a failure. The signal aborts on timeout or when
   * the result is no longer needed.
   */
  probe(id: string, signal: AbortSignal): Promise<boolean>
  /** Called with the verdict on a worker when it is first known and when it changes. */
  changed(id: string, healthy: boolean): void
  /** Uniform in [0, 1): spreads checks, which would otherwise run in lockstep. */
  random(): number
  readonly timers: Timers
}

/** Intervals vary by this share in either direction. */
const JITTER = 0.1

interface Watched {
  readonly id: string
  healthy?: boolean
  /** Consecutive checks that contradict the verdict. */
  against: number
  /**
   * A probe that has not settled. One that outlives its timeout stays here: no second one starts in parallel.
   */
  probe?: { readonly abort: AbortController; timedOut: boolean }
  cancelNext?: () => void
  cancelTimeout?: () => void
  /** A request failed during a check that may have begun before the failure. */
  again: boolean
}

/**
 * Checks every watched worker periodically and independently. After `stop` or `unwatch` there are no more
 * callbacks, even from probes that settle later.
 */
export class HealthLoop {
  readonly #options: HealthLoopOptions
  readonly #watched = new Map<string, Watched>()

  constructor(options: HealthLoopOptions) {
    this.#options = options
  }

  /** Checks at once, then at intervals. */
  watch(id: string): void {
    if (this.#watched.has(id)) return
    const worker: Watched = { id, against: 0, again: false }
    this.#watched.set(id, worker)
    this.#check(worker)
  }

  watches(id: string): boolean {
    return this.#watched.has(id)
  }

  unwatch(id: string): void {
    const worker = this.#watched.get(id)
    if (worker === undefined) return
    this.#watched.delete(id)
    worker.cancelNext?.()
    worker.cancelTimeout?.()
    worker.probe?.abort.abort()
  }

  stop(): void {
    for (const id of this.#watched.keys()) this.unwatch(id)
  }

  /**
   * A connection was refused or broke: check now. Changes no verdict by itself, since the request may be at
   * fault.
   */
  passiveFailure(id: string): void {
    const worker = this.#watched.get(id)
    if (worker === undefined) return
    if (worker.probe === undefined) this.#check(worker)
    else worker.again = true
  }

  #check(worker: Watched): void {
    worker.cancelNext?.()
    delete worker.cancelNext
    if (worker.probe !== undefined) return this.#ended(worker, false)
    const probe = { abort: new AbortController(), timedOut: false }
    worker.probe = probe
    worker.again = false
    worker.cancelTimeout = this.#options.timers.after(this.#options.limits.timeoutMs, () => {
      probe.timedOut = true
      probe.abort.abort()
      this.#ended(worker, false)
    })
    const settled = (healthy: boolean) => {
      delete worker.probe
      if (probe.timedOut || this.#watched.get(worker.id) !== worker) return
      worker.cancelTimeout?.()
      this.#ended(worker, healthy)
    }
    this.#probe(worker.id, probe.abort.signal).then(settled, () => settled(false))
  }

  /** A probe that throws instead of rejecting is a failed check too. */
  async #probe(id: string, signal: AbortSignal): Promise<boolean> {
    return this.#options.probe(id, signal)
  }

  #ended(worker: Watched, healthy: boolean): void {
    const { intervalMs } = this.#options.limits
    const spread = 1 + JITTER * (2 * this.#options.random() - 1)
    worker.cancelNext = this.#options.timers.after(worker.again ? 0 : intervalMs * spread, () =>
      this.#check(worker),
    )
    worker.again = false
    this.#judge(worker, healthy)
  }

  #judge(worker: Watched, healthy: boolean): void {
    if (worker.healthy === healthy) {
      worker.against = 0
      return
    }
    const { failures, successes } = this.#options.limits
    if (worker.healthy !== undefined && ++worker.against < (healthy ? successes : failures)) return
    worker.against = 0
    worker.healthy = healthy
    this.#options.changed(worker.id, healthy)
  }
}
