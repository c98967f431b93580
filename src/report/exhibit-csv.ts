/** The numbers of an exhibit as CSV, one per line: its tables, or its charts if it has no table. */
import type { Cell, Exhibit, ExhibitChart, ExhibitTable } from './exhibit.ts'

/** An exhibit from one set of traces. */
export interface TracedExhibit {
  readonly traces: string
  readonly exhibit: Exhibit
}

type Value = string | number | undefined
/** Table or chart, row or series, column or x, then the value with half of its 95 % interval and its unit. */
type Line = readonly [part: string, row: string, column: Value, value: Value, half?: number, unit?: string]

const HEAD = ['traces', 'part', 'row', 'column', 'value', 'half_interval', 'unit'] as const

export function exhibitCsv(exhibits: readonly TracedExhibit[]): string {
  const lines = exhibits.flatMap(({ traces, exhibit }) =>
    linesOf(exhibit).map(line => [traces, ...line, ...Array<undefined>(HEAD.length - 1 - line.length)]),
  )
  return [HEAD, ...lines].map(line => `${line.map(quoted).join(',')}\n`).join('')
}

function linesOf({ title, tables, charts }: Exhibit): Line[] {
  return tables.length > 0
    ? tables.flatMap(table => tableLines(table, table.title ?? title))
    : charts.flatMap(chartLines)
}

function tableLines(table: ExhibitTable, part: string): Line[] {
  const columns = table.columns.map((name, at) =>
    table.columns.indexOf(name) === table.columns.lastIndexOf(name)
      ? name
      : `${table.columns[at - 1] ?? ''} ${name}`,
  )
  return table.rows.flatMap(([name, ...cells]) =>
    cells.flatMap((cell, at) => cellLine(cell, part, String(name), columns[at + 1]!)),
  )
}

function cellLine(cell: Cell, part: string, row: string, column: string): Line[] {
  if (cell === null) return []
  if (typeof cell === 'string') return [[part, row, column, cell]]
  return [[part, row, column, cell.value, cell.half, cell.unit]]
}

function chartLines(chart: ExhibitChart): Line[] {
  const { title } = chart
  switch (chart.kind) {
    case 'lines':
      return chart.series.flatMap(({ label, points }) => points.map(({ x, y }): Line => [title, label, x, y]))
    case 'bars':
      return chart.groups.flatMap(({ bars }) =>
        bars.map(({ label, value, unit }): Line => [title, label, chart.x, value, undefined, unit]),
      )
    case 'points':
      return chart.groups.flatMap(({ label, points }) => points.map(([x, y]): Line => [title, label, x, y]))
    case 'heat':
      // One line per row: a line per cell would make the file thirty times as long.
      return chart.rows.map(({ label, values }): Line => {
        const columns = `${chart.columnNoun} ${chart.columns[0]} to ${chart.columns.at(-1)}`
        return [title, label, columns, values.join(' ')]
      })
  }
}

function quoted(value: Value): string {
  const text = String(value ?? '')
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
