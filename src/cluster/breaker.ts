/** When a worker is taken out, and for how long. */
export interface BreakerLimits {
  /** Opens after this many consecutive failures … */
  readonly consecutiveFailures: number
  /** … or if this share of at least `windowRequests` ends within the window were failures. */
  readonly windowMs: number
  readonly windowRequests: number
  readonly windowFailureShare: number
  /** After this time one probe is let through. */
  readonly openMs: number
}

export type BreakerState = 'closed' | 'open' | 'half_open'

/**
 * Permission to send one request. It ends once, with the request: after the last byte of a stream, not at its
 * headers.
 */
export interface Pass {
  succeeded(nowMs: number): void
  failed(nowMs: number): void
  /** Does not count: the client left, or got a 4xx response. */
  ignored(): void
}

/** The window is counted in this many parts, so it may be up to one part shorter than configured. */
export const WINDOW_PARTS = 10

/**
 * Circuit breaker of one worker. Closed: every end counts. Open: no request passes until `openMs` are over.
 * Then one request is let through as a probe, and only its result counts: requests that began earlier do not
 * reflect the worker's current state.
 */
export class Breaker {
  readonly #limits: BreakerLimits
  readonly #changed: (state: BreakerState) => void
  readonly #window: FailureWindow
  #state: BreakerState = 'closed'
  #failuresInRow = 0
  #openUntilMs = 0
  #probing = false

  constructor(limits: BreakerLimits, changed: (state: BreakerState) => void = () => undefined) {
    this.#limits = limits
    this.#changed = changed
    this.#window = new FailureWindow(limits.windowMs)
  }

  stateAt(nowMs: number): BreakerState {
    return this.#state === 'open' && nowMs >= this.#openUntilMs ? 'half_open' : this.#state
  }

  /**
   * True if `allow` would give a pass now. Does not take one, so that candidates that are not picked keep
   * theirs.
   */
  wouldAllow(nowMs: number): boolean {
    const state = this.stateAt(nowMs)
    return state === 'closed' || (state === 'half_open' && !this.#probing)
  }

  /** False while open, and in half_open until the one probe has ended. */
  allow(nowMs: number): Pass | false {
    if (!this.wouldAllow(nowMs)) return false
    const probe = this.#state !== 'closed'
    if (probe) {
      this.#probing = true
      this.#become('half_open')
    }
    return this.#pass(probe)
  }

  #pass(probe: boolean): Pass {
    let ended = false
    const end = (then: () => void) => {
      if (ended) return
      ended = true
      if (probe) this.#probing = false
      if (probe || this.#state === 'closed') then()
    }
    return {
      succeeded: nowMs => end(() => (probe ? this.#close() : this.#count(nowMs, false))),
      failed: nowMs => end(() => (probe ? this.#open(nowMs) : this.#count(nowMs, true))),
      ignored: () => end(() => undefined),
    }
  }

  #count(nowMs: number, failed: boolean): void {
    this.#window.add(nowMs, failed)
    this.#failuresInRow = failed ? this.#failuresInRow + 1 : 0
    if (!failed) return
    const { consecutiveFailures, windowRequests, windowFailureShare } = this.#limits
    const { ends, failures } = this.#window
    if (
      this.#failuresInRow >= consecutiveFailures ||
      (ends >= windowRequests && failures >= windowFailureShare * ends)
    )
      this.#open(nowMs)
  }

  #open(nowMs: number): void {
    this.#openUntilMs = nowMs + this.#limits.openMs
    this.#become('open')
  }

  #close(): void {
    this.#failuresInRow = 0
    this.#window.clear()
    this.#become('closed')
  }

  #become(state: BreakerState): void {
    if (state === this.#state) return
    this.#state = state
    this.#changed(state)
  }
}

/**
 * Ends within the last `windowMs`, in parts that are cleared as time passes: memory does not grow with
 * requests.
 */
class FailureWindow {
  ends = 0
  failures = 0
  readonly #partMs: number
  readonly #endsOf = new Float64Array(WINDOW_PARTS)
  readonly #failuresOf = new Float64Array(WINDOW_PARTS)
  #newest = 0

  constructor(windowMs: number) {
    this.#partMs = Math.max(1, windowMs / WINDOW_PARTS)
  }

  add(nowMs: number, failed: boolean): void {
    // If the clock goes back, the end counts in the newest part.
    const part = Math.max(this.#newest, Math.floor(nowMs / this.#partMs))
    for (let passed = Math.max(this.#newest + 1, part - WINDOW_PARTS + 1); passed <= part; passed++) {
      const at = passed % WINDOW_PARTS
      this.ends -= this.#endsOf[at]!
      this.failures -= this.#failuresOf[at]!
      this.#endsOf[at] = this.#failuresOf[at] = 0
    }
    this.#newest = part
    const at = part % WINDOW_PARTS
    this.#endsOf[at]!++
    this.ends++
    if (!failed) return
    this.#failuresOf[at]!++
    this.failures++
  }

  clear(): void {
    this.#endsOf.fill(0)
    this.#failuresOf.fill(0)
    this.ends = this.failures = 0
  }
}
