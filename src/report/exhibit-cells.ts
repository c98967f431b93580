/** Cells of exhibits as text, the same in HTML and Markdown. */
import type { Cell, ExhibitNumber, ExhibitTable } from './exhibit.ts'
import { fixed } from './numbers.ts'

const NONE = '–'

export function cellText(cell: Cell | undefined): string {
  if (cell === undefined) return ''
  if (cell === null) return NONE
  return typeof cell === 'string' ? cell : numberText(cell)
}

/**
 * `+12.3 ± 0.4 %`. A value that is not finite is shown as a dash, an interval that is not finite is left out.
 */
export function numberText({ value, digits, unit, half, signed }: ExhibitNumber): string {
  const shown = fixed(value, digits)
  if (shown === NONE) return NONE
  const plus = signed === true && value > 0 && /[1-9]/.test(shown) ? '+' : ''
  const interval = half !== undefined && Number.isFinite(half) ? `\u00a0±\u00a0${fixed(half, digits)}` : ''
  return `${plus}${shown}${interval}${unit === undefined ? '' : `\u00a0${unit}`}`
}

/** True for a column of numbers, which is aligned right. The first column holds names. */
export function isNumeric({ rows }: ExhibitTable, column: number): boolean {
  const cells = rows.map(row => row[column] ?? null).filter(cell => cell !== null)
  return column > 0 && cells.length > 0 && cells.every(cell => typeof cell !== 'string')
}

/** Three or four significant digits, for tooltips: chart data has no number of digits. */
export function significant(value: number): string {
  const magnitude = Math.abs(value) < 1e-9 ? 0 : Math.floor(Math.log10(Math.abs(value)))
  return fixed(value, Math.max(0, Math.min(9, 3 - magnitude)))
}
