/**
 * Duration of a step according to a cost profile: from its items and the experts that its decode items
 * activate.
 */
import { type CostProfile, prefillUs, stepUs, transferUs } from '../cost/profile.ts'
import type { StepItem } from './back-end.ts'

export class StepPace {
  readonly #profile: CostProfile
  readonly #usPerMs: number
  readonly #windowed: Float64Array

  /** Times are divided by `speed`; Infinity: steps take no time. */
  constructor(profile: CostProfile, speed: number) {
    this.#profile = profile
    this.#usPerMs = 1_000 * speed
    this.#windowed = new Float64Array(profile.decode.windows?.length ?? 0)
  }

  /** `active`: experts of the decode items, mean over the profile’s layers. */
  stepMs(items: readonly Pick<StepItem, 'from' | 'to' | 'decode'>[], active: number): number {
    const { decode, prefill } = this.#profile
    let [batch, context, prefilled] = [0, 0, 0]
    this.#windowed.fill(0)
    for (const item of items) {
      if (item.decode) {
        batch++
        context += item.to
        decode.windows?.forEach(({ tokens }, w) => (this.#windowed[w]! += Math.min(tokens, item.to)))
      } else prefilled += item.to - item.from
    }
    const us =
      batch > 0
        ? stepUs(this.#profile, batch, active, context, this.#windowed) + prefill.perTokenUs * prefilled
        : prefillUs(this.#profile, prefilled)
    return us / this.#usPerMs
  }

  transferMs(tokens: number): number {
    return transferUs(this.#profile, tokens) / this.#usPerMs
  }
}
