/**
 * What a batch attends to in sliding-window layers: Σ min(context, window) over its requests, for each window
 * of a profile. All requests grow by one token per step, so the step at which a context fills the window is
 * known when the request joins: a sum grows by the number of requests that have not filled it, and no step
 * looks at requests one by one. The sums are integers and never drift.
 */
import type { AttentionWindow } from '../cost/profile.ts'

export class WindowSums {
  /** [windows] tokens. */
  readonly sums: Float64Array
  readonly #tokens: readonly number[]
  /** [windows] requests whose context is shorter than the window. */
  readonly #growing: Float64Array
  /**
   * Of those, how many fill the window at a future step, by the number of that step; sparse, since a window
   * may be long.
   */
  readonly #filling: readonly Map<number, number>[]
  #step = 0

  constructor(windows: readonly AttentionWindow[]) {
    this.#tokens = windows.map(({ tokens }) => tokens)
    this.#growing = new Float64Array(windows.length)
    this.#filling = windows.map(() => new Map<number, number>())
    this.sums = new Float64Array(windows.length)
  }

  join(context: number): void {
    this.#count(context, 1)
  }

  /** `context`: its current length. */
  leave(context: number): void {
    this.#count(context, -1)
  }

  /** Every request gets one more token. */
  grow(): void {
    this.#step++
    for (let w = 0; w < this.sums.length; w++) {
      this.sums[w]! += this.#growing[w]!
      const filled = this.#filling[w]!.get(this.#step)
      if (filled === undefined) continue
      this.#growing[w]! -= filled
      this.#filling[w]!.delete(this.#step)
    }
  }

  #count(context: number, change: 1 | -1): void {
    for (let w = 0; w < this.sums.length; w++) {
      const tokens = this.#tokens[w]!
      this.sums[w]! += change * Math.min(context, tokens)
      if (context >= tokens) continue
      const fullAt = this.#step + tokens - context
      this.#growing[w]! += change
      this.#filling[w]!.set(fullAt, (this.#filling[w]!.get(fullAt) ?? 0) + change)
    }
  }
}
