/**
 * Counts of positive numbers in buckets of equal relative width, so that memory does not grow with the
 * measurements. An octave has 1,024 buckets, and values are assumed to be evenly spread inside a bucket: a
 * quantile is off by at most 0.1 %. The bucket comes from the bits of the float, so no logarithm is needed
 * and every machine counts alike. Values below 1 share the first bucket, those above 2^40 (in µs: 12 days)
 * the last.
 */
export interface Histogram {
  readonly counts: Float64Array
  total: number
  /** Exact, up to rounding. */
  sum: number
}

export interface Quantiles {
  readonly count: number
  readonly mean: number
  readonly p50: number
  readonly p90: number
  readonly p99: number
}

const SUB_BUCKETS = 1_024
const OCTAVES = 40
const BUCKETS = OCTAVES * SUB_BUCKETS

const float = new Float64Array(1)
const bits = new Uint32Array(float.buffer)
// little-endian: the upper word comes second
const HIGH = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1 ? 1 : 0

export function createHistogram(): Histogram {
  return { counts: new Float64Array(BUCKETS), total: 0, sum: 0 }
}

/** Counts `weight` equal values at once. */
export function record(histogram: Histogram, value: number, weight = 1): void {
  histogram.counts[bucketOf(value)]! += weight
  histogram.total += weight
  histogram.sum += value * weight
}

/** Adds the counts of `from` to `into`. */
export function merge(into: Histogram, from: Histogram): void {
  for (let b = 0; b < BUCKETS; b++) into.counts[b]! += from.counts[b]!
  into.total += from.total
  into.sum += from.sum
}

/** The value that a share `q` of the values do not exceed; NaN if there is none. */
export function quantile({ counts, total }: Histogram, q: number): number {
  if (total === 0) return NaN
  let left = q * total
  let last = 0
  for (let b = 0; b < BUCKETS; b++) {
    const count = counts[b]!
    if (count === 0) continue
    if (count >= left) return lowEnd(b) + (lowEnd(b + 1) - lowEnd(b)) * (left / count)
    left -= count
    last = b
  }
  return lowEnd(last + 1)
}

export const mean = ({ sum, total }: Histogram): number => (total === 0 ? NaN : sum / total)

/** `unit` converts recorded values: 1/1000 for milliseconds from microseconds. */
export function quantilesOf(histogram: Histogram, unit = 1): Quantiles {
  const at = (q: number) => quantile(histogram, q) * unit
  return { count: histogram.total, mean: mean(histogram) * unit, p50: at(0.5), p90: at(0.9), p99: at(0.99) }
}

/**
 * The upper word of a float is sign, 11 bits of exponent and 20 of mantissa: exponent and 10 bits of mantissa
 * are the bucket number.
 */
function bucketOf(value: number): number {
  if (!(value >= 1)) return 0
  float[0] = value
  const bucket = (bits[HIGH]! >>> 10) - (1023 << 10)
  return bucket < BUCKETS ? bucket : BUCKETS - 1
}

const lowEnd = (bucket: number): number =>
  2 ** Math.floor(bucket / SUB_BUCKETS) * (1 + (bucket % SUB_BUCKETS) / SUB_BUCKETS)
