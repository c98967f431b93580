/** Numbers of the sections on capture. */
import { fixed } from '../report/numbers.ts'
import { quantile } from './step-fit.ts'

export const median = (values: readonly number[]): number => quantile(Float64Array.from(values).sort(), 0.5)

export const signed = (value: number, digits: number): string =>
  `${value > 0 ? '+' : ''}${fixed(value, digits)}`

/** A median with its interval: `+0.24 (+0.08 to +0.41)`. */
export const withInterval = (of: {
  readonly median: number
  readonly low: number
  readonly high: number
}): string => `${signed(of.median, 2)} (${signed(of.low, 2)} to ${signed(of.high, 2)})`
