/** A line, or a level that turns into a line: the time of a step over its experts where the host may hide it. */
import { leastSquares } from '../math/least-squares.ts'
import { quantile } from './step-fit.ts'

export interface KneeFit {
  readonly slope: number
  readonly slopeError: number
  /** Of the line, at x = 0. */
  readonly intercept: number
  /** Where the level ends, and its height; absent for a plain line. */
  readonly knee?: { readonly x: number; readonly level: number }
  readonly r2: number
  readonly count: number
}

/** A knee must explain this share of the squared error that the line leaves. */
const CLEARLY = 0.2
/** A knee has at least this share of the points on either side. */
const MARGIN = 0.05
const CANDIDATES = 90

export function kneeFit(x: readonly number[], y: readonly number[]): KneeFit {
  const ones = x.map(() => 1)
  const line = leastSquares([ones, x], y)
  const sorted = Float64Array.from(x).sort()
  const shares = Array.from(
    { length: CANDIDATES + 1 },
    (_, i) => MARGIN + ((1 - 2 * MARGIN) * i) / CANDIDATES,
  )
  const bent = [...new Set(shares.map(share => quantile(sorted, share)))]
    .filter(at => at > sorted[0]! && at < sorted.at(-1)!)
    .map(at => ({ at, fit: leastSquares([ones, x.map(value => Math.max(0, value - at))], y) }))
    .reduce<{ at: number; fit: typeof line } | undefined>(
      (best, one) => (best === undefined || one.fit.r2 > best.fit.r2 ? one : best),
      undefined,
    )
  if (bent === undefined || 1 - bent.fit.r2 > (1 - CLEARLY) * (1 - line.r2))
    return {
      slope: line.coefficients[1]!,
      slopeError: line.errors[1]!,
      intercept: line.coefficients[0]!,
      r2: line.r2,
      count: line.count,
    }
  const { at, fit } = bent
  const [level, slope] = [fit.coefficients[0]!, fit.coefficients[1]!]
  return {
    slope,
    slopeError: fit.errors[1]!,
    intercept: level - slope * at,
    knee: { x: at, level },
    r2: fit.r2,
    count: fit.count,
  }
}
