import type { ExhibitReport } from '../report/exhibit.ts'

/** Digits that a reader or a chart can use: a report stays small, and a last bit that differs does not show. */
const DIGITS = 5

export function rounded(report: ExhibitReport): ExhibitReport {
  return round(report) as ExhibitReport
}

function round(value: unknown): unknown {
  if (typeof value === 'number') return Number(value.toPrecision(DIGITS))
  if (Array.isArray(value)) return value.map(round)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, of]) => [key, round(of)]))
}
