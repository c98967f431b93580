/**
 * A line, or a level that turns into a line: the time of a step over its experts where the host may hide it.
 */
import { leastSquares } from '../math/least-squares.ts'
import { fitSteps } from './step-fit.ts'

export interface KneeFit {
  readonly slope: number
  /** Standard error. */
  readonly slopeError: number
  /** Of the line, at x = 0. */
  readonly intercept: number
  /** Where the level ends, and its height; absent for a plain line. */
  readonly knee?: { readonly x: number; readonly level: number }
  readonly r2: number
  readonly count: number
}

/** The fit of a profile over the experts alone. */
export function kneeFit(experts: readonly number[], ms: readonly number[]): KneeFit {
  const steps = { ms: [...ms], experts: [...experts], batch: ms.map(() => 0) }
  const { decode, r2, steps: count } = fitSteps(steps, 1)
  const [slope, intercept] = [decode.perActiveExpertUs / 1000, decode.baseUs / 1000]
  const level = decode.host && decode.host.baseUs / 1000
  const knee = level === undefined ? undefined : { x: (level - intercept) / slope, level }
  const rows = ms.flatMap((_, i) => (knee === undefined || experts[i]! > knee.x ? [i] : []))
  const { errors } = leastSquares(
    [rows.map(() => 1), rows.map(i => experts[i]!)],
    rows.map(i => ms[i]!),
  )
  return { slope, slopeError: errors[1]!, intercept, knee, r2, count }
}
