/** Timers, so that tests can move time by hand. */
export interface Timers {
  /** @returns a function that cancels it. */
  after(delayMs: number, run: () => void): () => void
}

/** Node's own; they do not keep the process alive. */
export const NODE_TIMERS: Timers = {
  after(delayMs, run) {
    const timer = setTimeout(run, delayMs).unref()
    return () => clearTimeout(timer)
  },
}

export interface HealthLimits {
  readonly intervalMs: number
  readonly timeoutMs: number
  /** Checks in a row that take a worker out, and that bring it back. The first check of a worker decides alone. */
  readonly failures: number
  readonly successes: number
}

export interface HealthLoopOptions {
  readonly limits: HealthLimits
  /** One check. True when the worker is well; a rejection is a failure. The signal fires when its time is over or nobody wants to know. */
  probe(id: string, signal: AbortSignal): Promise<boolean>
  /** The verdict on a worker, when it is first known and when it changes. */
  changed(id: string, healthy: boolean): void
  /** Uniform in [0, 1): spreads checks, which would otherwise all fall together. */
  random(): number
  readonly timers: Timers
}

/** Intervals vary by this share to either side. */
const JITTER = 0.1

interface Watched {
  readonly id: string
  healthy?: boolean
  /** Checks in a row that say the opposite of the verdict. */
  against: number
  /** A probe that has not settled. One that outlives its time stays here: no second one starts beside it. */
  probe?: { readonly abort: AbortController; timedOut: boolean }
  cancelNext?: () => void
  cancelTimeout?: () => void
  /** A request failed while a check was under way that may have begun before the fault. */
  again: boolean
}

/** Checks every watched worker now and then, each by itself. After `stop` or `unwatch` nothing more is heard, whatever still settles. */
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

  /** A connection was refused or broke: the next check is due now. It changes no verdict by itself, since the fault may be of the request. */
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

  /** A probe that throws instead of rejecting is a failed check like any other. */
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
