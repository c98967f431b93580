/** A report of exhibits in a terminal: findings and first tables. Charts are in the HTML page. */
import type { Exhibit, ExhibitReport } from './exhibit.ts'
import { cellText, isNumeric } from './exhibit-cells.ts'
import { table } from './table.ts'
import { printable, type Terminal, wrapped } from './terminal.ts'

const INDENT = 2
/** Also the width if the terminal's is unknown. */
const MAX_WIDTH = 120

export function exhibitSummary({ title, intro, sections }: ExhibitReport, terminal: Terminal): string {
  const width = Math.min(terminal.width, MAX_WIDTH)
  return [
    `${terminal.bold(printable(title))}\n${wrapped(terminal.dim(printable(intro)), width)}`,
    ...sections.map(section =>
      [
        terminal.accent(printable(section.title)),
        ...section.exhibits.map(exhibit => exhibitLines(exhibit, width, terminal)),
      ].join('\n'),
    ),
  ].join('\n\n')
}

/** The first table is the summary; others are too long for a terminal. */
function exhibitLines({ title, finding, tables }: Exhibit, width: number, terminal: Terminal): string {
  const [first] = tables
  const indent = ' '.repeat(INDENT)
  const text = `${indent}${terminal.bold(printable(title))}\n${indent}${wrapped(printable(finding), width - INDENT, INDENT)}`
  if (first === undefined) return text
  const columns = first.columns.map(
    (name, at) => ({ title: printable(name), align: isNumeric(first, at) ? 'right' : 'left' }) as const,
  )
  const rows = first.rows.map(row =>
    first.columns.map((_, at) => printable(cellText(row[at])).replaceAll('\u00a0', ' ')),
  )
  return `${text}\n${table(columns, rows, terminal)}\n`
}
