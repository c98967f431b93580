import type { ExhibitReport } from '../report/exhibit.ts'
import * as numbers from '../report/numbers.ts'

/** Digits that a reader or a chart can use: a report stays small, and a last bit that differs does not show. */
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
 * Numbers in findings, rounded first as those of tables will be: 9.85002 is kept as 9.85, of which a table makes 9.8, and a finding must
 * not make 9.9 of it.
 */
export const fixed = (value: number | undefined, digits: number): string =>
  numbers.fixed(value === undefined ? undefined : kept(value), digits)

/** A share of 1, which tables have as a percentage. */
export const percent = (share: number, digits = 0): string => numbers.percent(kept(100 * share) / 100, digits)

/** The number that a table shows with so many digits. Verdicts are passed on it, so that a reader comes to the same ones. */
export const shown = (value: number, digits: number): number => Number(kept(value).toFixed(digits))
