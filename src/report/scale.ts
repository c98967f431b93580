/** Scales and ticks. A scale is finite and increasing for any data, so charts need no checks of their own. */
export interface Scale {
  /** Position of a value. */
  at(value: number): number
  readonly ticks: readonly number[]
  readonly step: number
  readonly from: number
  readonly to: number
}

export interface Extent {
  readonly low: number
  readonly high: number
}

/** Larger than any real data, and sums and differences of such numbers are finite. */
const LARGEST = 1e100

/** Lowest and highest finite value; undefined if there is none. */
export function extent(values: Iterable<number>): Extent | undefined {
  let low = Infinity
  let high = -Infinity
  for (const value of values) {
    if (!Number.isFinite(value)) continue
    if (value < low) low = value
    if (value > high) high = value
  }
  return low <= high ? { low, high } : undefined
}

/** About `wanted` ticks in round steps (1, 2, 5 × 10ⁿ) that cover low … high. */
export function niceTicks(
  low: number,
  high: number,
  wanted = 5,
  smallestStep = 0,
): { readonly values: readonly number[]; readonly step: number } {
  const [from, to] = widened(low, high)
  const rough = (to - from) / Math.max(1, wanted)
  const unit = 10 ** Math.floor(Math.log10(rough))
  const nice = [1, 2, 5, 10].find(factor => factor * unit >= rough * 0.999_999) ?? 10
  const step = Math.max(clean(nice * unit), smallestStep)
  // A tick that misses the end of the data only by rounding still covers it.
  const first = Math.floor(from / step + 1e-9)
  const last = Math.max(first + 1, Math.ceil(to / step - 1e-9))
  return { values: Array.from({ length: last - first + 1 }, (_, i) => clean((first + i) * step)), step }
}

export interface ScaleOptions {
  /** About how many ticks. */
  readonly wanted?: number
  readonly smallestStep?: number
  /** End at the data, with ticks inside. Otherwise the scale ends on ticks. */
  readonly tight?: boolean
}

/** Maps values to positions, which may decrease (y axes). Values outside the range are extrapolated. */
export function linearScale(
  data: Extent,
  positions: readonly [number, number],
  options: ScaleOptions = {},
): Scale {
  const { values, step } = niceTicks(data.low, data.high, options.wanted, options.smallestStep)
  const [from, to] = options.tight === true ? widened(data.low, data.high) : [values[0]!, values.at(-1)!]
  const inside = values.filter(value => value >= from && value <= to)
  const [start, end] = positions
  const slope = (end - start) / (to - from)
  return {
    at: value => start + (value - from) * slope,
    ticks: inside.length > 0 ? inside : [from],
    step,
    from,
    to,
  }
}

/** A range of non-zero width, so that equal values still have an axis. */
function widened(low: number, high: number): [number, number] {
  const a = bounded(Math.min(low, high))
  const b = bounded(Math.max(low, high))
  const size = Math.max(Math.abs(a), Math.abs(b))
  if (size < 1e-12) return [0, 1]
  return b - a > size * 1e-9 ? [a, b] : [a - size * 0.1, b + size * 0.1]
}

function bounded(value: number): number {
  return Number.isNaN(value) ? 0 : Math.max(-LARGEST, Math.min(LARGEST, value))
}

function clean(value: number): number {
  const rounded = Number(value.toPrecision(12))
  return rounded === 0 ? 0 : rounded
}
