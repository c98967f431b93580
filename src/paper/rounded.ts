import type { ExhibitReport } from '../report/exhibit.ts'
import * as numbers from '../report/numbers.ts'

/** Significant digits kept: reports stay small, and differences in the last bits do not show. */
const DIGITS = 5

export function rounded(report: ExhibitReport): ExhibitReport {
  return round(report) as ExhibitReport
}

function round(value: unknown): unknown {
  if (typeof value === 'number') return kept(value)
  if (Array.isArray(value)) return value.map(round)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, of]) => [key, round(of)]))
}

const kept = (value: number): number => Number(value.toPrecision(DIGITS))

/**
 * Numbers in findings, rounded first as in tables: 9.85002 is kept as 9.85, which a table prints as 9.8, so a
 * finding must not print 9.9.
 */
export const fixed = (value: number | undefined, digits: number): string =>
  numbers.fixed(value === undefined ? undefined : kept(value), digits)

/** A share, printed as a percentage as in tables. */
export const percent = (share: number, digits = 0): string => numbers.percent(kept(100 * share) / 100, digits)

/**
 * The number as a table prints it. Targets are checked against it, so that a reader comes to the same
 * verdict.
 */
export const shown = (value: number, digits: number): number => Number(kept(value).toFixed(digits))
