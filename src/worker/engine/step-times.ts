/** Schedules the ends of steps and measures how closely they are kept. */
import type { StepTiming } from '../types.ts'

/** Minimum share of a step’s modelled time that remains after the previous step ended late. */
const LEAST = 0.75
/** Beyond this delay the machine was suspended or is too slow, and catching up is pointless. */
const FORGIVE_MS = 1_000
/** Errors are counted in buckets of 0.1 %; 200 % and above share one bucket. */
const BINS = 2_001

export class StepTimes {
  /**
   * Actual and ideal end of the last step; steps follow each other without a gap. Undefined after a pause.
   */
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
   * Starts a step and returns when it should end. After a late step the following ones are shortened until
   * the delay is recovered, but none by more than a quarter, so that a delay does not cause a burst of
   * tokens.
   */
  begin(nowMs: number, stepMs: number): number {
    const behindMs = nowMs - this.#idealMs
    const follows = this.#endedMs !== undefined && behindMs < FORGIVE_MS
    this.#beganMs = this.#endedMs ?? nowMs
    this.#stepMs = stepMs
    this.#idealMs = (follows ? this.#idealMs : nowMs) + stepMs
    return Math.max(this.#idealMs, nowMs + LEAST * stepMs)
  }

  /** `computeMs`: the part of the step spent computing. */
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

  /** No work: the next step does not follow the last one. */
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
