import { quantileOf } from './quantile.ts'

/**
 * Quantiles of a stream of numbers in limited memory: exact up to `max` values, then those of a uniform
 * random sample of that size (Vitter's algorithm R).
 */
export class Reservoir {
  readonly #max: number
  readonly #uniform: () => number
  readonly #values: number[] = []
  /** Values added. */
  count = 0

  constructor(max: number, uniform: () => number = Math.random) {
    this.#max = max
    this.#uniform = uniform
  }

  add(value: number): void {
    this.count++
    if (this.#values.length < this.#max) return void this.#values.push(value)
    const at = Math.floor(this.#uniform() * this.count)
    if (at < this.#max) this.#values[at] = value
  }

  /** In the order of `shares`; NaN without values. */
  quantiles(shares: readonly number[]): number[] {
    const sorted = Float64Array.from(this.#values).sort()
    return shares.map(share => quantileOf(sorted, share))
  }
}
