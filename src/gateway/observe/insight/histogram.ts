/**
 * A histogram with approximate quantiles, exact enough for charts: about a kilobyte for any number of values.
 */
import type { Spread } from './wire.ts'

export interface Bins {
  readonly length: number
  /** The bin of a value; may be out of range. */
  indexOf(value: number): number
  /** The value at a fraction of a bin. */
  valueAt(bin: number, fraction: number): number
}

/**
 * Milliseconds from 10 µs to 10 minutes; each bin is 10 % wider than the one before, so quantiles are within
 * 10 %, and within 5 % for many values.
 */
const RATIO = Math.log(1.1)
const MIN_MS = 0.01
export const TIME_BINS: Bins = {
  length: Math.ceil(Math.log(600_000 / MIN_MS) / RATIO),
  indexOf: ms => Math.floor(Math.log(ms / MIN_MS) / RATIO),
  valueAt: (bin, fraction) => MIN_MS * Math.exp(RATIO * (bin + fraction)),
}

/** Cosines from 0 to 1 in steps of 0.005. Values below 0 count in the first bin. */
const COSINE_STEPS = 200
export const COSINE_BINS: Bins = {
  length: COSINE_STEPS,
  indexOf: cosine => Math.floor(cosine * COSINE_STEPS),
  valueAt: (bin, fraction) => (bin + fraction) / COSINE_STEPS,
}

export class Histogram {
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
    const bin = this.#bins.indexOf(value)
    this.#counts[bin > 0 ? Math.min(bin, this.#counts.length - 1) : 0]!++
    this.#sum += value
    this.#count++
  }

  addAll(other: Histogram): void {
    for (let bin = 0; bin < this.#counts.length; bin++) this.#counts[bin]! += other.#counts[bin]!
    this.#sum += other.#sum
    this.#count += other.#count
  }

  /** Undefined without values. */
  quantile(q: number): number | undefined {
    if (this.#count === 0) return undefined
    let left = q * this.#count
    let last = 0
    for (let bin = 0; bin < this.#counts.length; bin++) {
      const here = this.#counts[bin]!
      if (here === 0) continue
      if (left <= here) return this.#bins.valueAt(bin, left / here)
      left -= here
      last = bin
    }
    return this.#bins.valueAt(last, 1) // rounding of q × count
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
