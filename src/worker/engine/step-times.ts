/** When steps end, and how well they kept to it. */
import type { StepTiming } from '../types.ts'

/** Of the time a step should take: what is left of it, at the least, when the one before it ended late. */
const LEAST = 0.75
/** Further behind than this the machine was asleep or is too slow, and catching up would help nobody. */
const FORGIVE_MS = 1_000
/** Errors are counted in steps of 0.1 %, those of 200 % and above together. */
const BINS = 2_001

export class StepTimes {
  /** When the last step ended, and when it should have: steps follow each other without a gap. Undefined after a pause. */
  #endedMs: number | undefined
  #idealMs = 0
  #beganMs = 0
  #stepMs = 0
  #steps = 0
  #modelledMs = 0
  #takenMs = 0
  #computeMs = 0
  readonly #errors = new Uint32Array(BINS)

  /**
   * A step begins; returns when it is to end. One that ended late shortens those after it until the lateness is gone, so that it does
   * not add up, but none by more than a quarter, so that a hiccup does not make a burst of tokens.
   */
  begin(nowMs: number, stepMs: number): number {
    const behindMs = nowMs - this.#idealMs
    const follows = this.#endedMs !== undefined && behindMs < FORGIVE_MS
    this.#beganMs = this.#endedMs ?? nowMs
    this.#stepMs = stepMs
    this.#idealMs = (follows ? this.#idealMs : nowMs) + stepMs
    return Math.max(this.#idealMs, nowMs + LEAST * stepMs)
  }

  /** `computeMs`: how much of it was spent computing. */
  end(nowMs: number, computeMs: number): void {
    this.#endedMs = nowMs
    this.#computeMs += computeMs
    this.#steps++
    const takenMs = nowMs - this.#beganMs
    this.#modelledMs += this.#stepMs
    this.#takenMs += takenMs
    if (this.#stepMs > 0)
      this.#errors[Math.min(BINS - 1, Math.floor(Math.abs(takenMs / this.#stepMs - 1) * 1_000))]!++
  }

  /** Nothing to do: the next step begins when it begins. */
  pause(): void {
    this.#endedMs = undefined
  }

  timing(): StepTiming {
    return {
      steps: this.#steps,
      modelledMs: this.#modelledMs,
      takenMs: this.#takenMs,
      errorP50: this.#quantile(0.5),
      errorP99: this.#quantile(0.99),
      computeMs: this.#steps === 0 ? 0 : this.#computeMs / this.#steps,
    }
  }

  #quantile(q: number): number {
    const total = this.#errors.reduce((sum, count) => sum + count, 0)
    if (total === 0) return 0
    let seen = 0
    const bin = this.#errors.findIndex(count => (seen += count) >= q * total)
    return (bin + 0.5) / 1_000
  }
}
