/**
 * Least absolute deviations for a few columns: like a median, such a fit does not follow a few values that
 * are far off, however far. Coefficients are not negative.
 */
import { leastSquares, nonNegativeLeastSquares } from './least-squares.ts'

/** Rounds of reweighting; fits of measured times settle within 30. */
export const ROUNDS = 60
/** Deviations below this share of the median value count as equal, so that weights stay finite. */
const EXACT = 1e-7

type Column = readonly number[]

/** By least squares with weights of 1/|deviation|, repeated; the best of all rounds. */
export function nonNegativeLeastAbsolute(columns: readonly Column[], values: Column): number[] {
  const smallest = smallestDeviation(values)
  let best: { readonly coefficients: number[]; readonly error: number } | undefined
  let weights = values.map(() => 1)
  for (let round = 0; round < ROUNDS; round++) {
    const coefficients = nonNegativeFit(columns, values, weights)
    const deviations = values.map((value, i) =>
      Math.abs(value - columns.reduce((sum, column, at) => sum + coefficients[at]! * column[i]!, 0)),
    )
    const error = deviations.reduce((a, b) => a + b, 0)
    if (best === undefined || error < best.error) best = { coefficients, error }
    weights = deviations.map(deviation => 1 / Math.max(deviation, smallest))
  }
  return best!.coefficients
}

/** Below this a deviation has the largest weight. */
export function smallestDeviation(values: Column): number {
  const sorted = Float64Array.from(values, Math.abs).sort()
  return Math.max(EXACT * sorted[Math.floor(sorted.length / 2)]!, Number.MIN_VALUE ** 0.25)
}

/** Weighted least squares. A column that does not vary beside the others says nothing and gets 0. */
export function nonNegativeFit(columns: readonly Column[], values: Column, weights: Column): number[] {
  const used: number[] = []
  columns.forEach((_, at) => {
    if (areIndependent([...used, at].map(one => columns[one]!))) used.push(at)
  })
  const roots = weights.map(Math.sqrt)
  const weighted = (column: Column) => column.map((value, i) => value * roots[i]!)
  const { coefficients } = nonNegativeLeastSquares(
    used.map(at => weighted(columns[at]!)),
    weighted(values),
  )
  const all = columns.map(() => 0)
  used.forEach((at, i) => (all[at] = coefficients[i]!))
  return all
}

function areIndependent(columns: readonly Column[]): boolean {
  if (columns[0]!.length < columns.length) return false
  try {
    leastSquares(columns, columns[0]!)
    return true
  } catch (error) {
    if (error instanceof RangeError) return false
    throw error
  }
}
