/**
 * What a batch attends to in layers with a sliding window: Σ min(context, window) over its requests, for each window of a profile. Kept as
 * requests join, grow by a token and leave, so that no step adds up its batch again; whole numbers, so that the sums never drift.
 */
import type { AttentionWindow } from '../cost/profile.ts'

export class WindowSums {
  /** [windows] tokens. */
  readonly sums: Float64Array
  readonly #tokens: Float64Array

  constructor(windows: readonly AttentionWindow[]) {
    this.#tokens = Float64Array.from(windows, ({ tokens }) => tokens)
    this.sums = new Float64Array(windows.length)
  }

  join(context: number): void {
    for (let w = 0; w < this.sums.length; w++) this.sums[w]! += Math.min(context, this.#tokens[w]!)
  }

  /** A request had `context` tokens and gets one more. */
  grow(context: number): void {
    for (let w = 0; w < this.sums.length; w++) if (context < this.#tokens[w]!) this.sums[w]!++
  }

  leave(context: number): void {
    for (let w = 0; w < this.sums.length; w++) this.sums[w]! -= Math.min(context, this.#tokens[w]!)
  }
}
