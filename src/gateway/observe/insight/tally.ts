/** Counts in bins whose quantiles are good enough to draw: a few hundred bytes for any number of values. */
import type { Spread } from './wire.ts'

/** How values fall into bins, and which value stands for one. */
export interface Bins {
  readonly length: number
  of(value: number): number
  /** The value at a share of a bin. */
  at(bin: number, share: number): number
}

/** Milliseconds: a tenth more from bin to bin, from 10 µs to 10 minutes, so that quantiles are within a tenth, and within a twentieth where there are many. */
const RATIO = Math.log(1.1)
const LEAST_MS = 0.01
export const TIME_BINS: Bins = {
  length: Math.ceil(Math.log(600_000 / LEAST_MS) / RATIO),
  of: ms => Math.floor(Math.log(ms / LEAST_MS) / RATIO),
  at: (bin, share) => LEAST_MS * Math.exp(RATIO * (bin + share)),
}

/** Cosines from 0 to 1 in steps of 0.005. Those below 0 no worker would be picked for. */
const COSINES = 200
export const COSINE_BINS: Bins = {
  length: COSINES,
  of: cosine => Math.floor(cosine * COSINES),
  at: (bin, share) => (bin + share) / COSINES,
}

export class Tally {
  readonly #bins: Bins
  readonly #counts: Uint32Array
  #sum = 0
  #count = 0

  constructor(bins: Bins) {
    this.#bins = bins
    this.#counts = new Uint32Array(bins.length)
  }

  get count(): number {
    return this.#count
  }

  add(value: number): void {
    const bin = this.#bins.of(value)
    this.#counts[bin > 0 ? Math.min(bin, this.#counts.length - 1) : 0]!++
    this.#sum += value
    this.#count++
  }

  addAll(other: Tally): void {
    for (let bin = 0; bin < this.#counts.length; bin++) this.#counts[bin]! += other.#counts[bin]!
    this.#sum += other.#sum
    this.#count += other.#count
  }

  /** Undefined of nothing. */
  quantile(q: number): number | undefined {
    if (this.#count === 0) return undefined
    let left = q * this.#count
    let last = 0
    for (let bin = 0; bin < this.#counts.length; bin++) {
      const here = this.#counts[bin]!
      if (here === 0) continue
      if (left <= here) return this.#bins.at(bin, left / here)
      left -= here
      last = bin
    }
    return this.#bins.at(last, 1) // rounding of q × count
  }

  spread(): Spread | undefined {
    if (this.#count === 0) return undefined
    return {
      count: this.#count,
      mean: this.#sum / this.#count,
      p50: this.quantile(0.5)!,
      p95: this.quantile(0.95)!,
    }
  }
}
