/** Numbers of the sections on capture. */
import { fixed } from '../report/numbers.ts'
import { quantile } from './step-fit.ts'

export const median = (values: readonly number[]): number => quantile(Float64Array.from(values).sort(), 0.5)

export const signed = (value: number, digits: number): string =>
  `${value > 0 ? '+' : ''}${fixed(value, digits)}`
