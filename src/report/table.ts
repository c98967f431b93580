import { columnsOf, type Terminal } from './terminal.ts'

export interface Column {
  readonly title: string
  /** Numbers are aligned right, words left. */
  readonly align?: 'left' | 'right'
}

const GAP = 2
const INDENT = 2

/**
 * A table as lines of text. Columns that do not fit the terminal follow below in further parts, each starting
 * with the first column, so that no line wraps.
 */
export function table(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  terminal: Terminal,
): string {
  const widths = columns.map(({ title }, c) =>
    rows.reduce((widest, row) => Math.max(widest, columnsOf(row[c] ?? '')), columnsOf(title)),
  )
  return partsOf(widths, terminal.width)
    .map(part => {
      const line = (cells: readonly string[], style: (text: string) => string = text => text) =>
        `${' '.repeat(INDENT)}${part.map(c => style(pad(cells[c] ?? '', widths[c]!, columns[c]!.align))).join(' '.repeat(GAP))}`.trimEnd()
      return [
        line(
          columns.map(({ title }) => title),
          terminal.dim,
        ),
        ...rows.map(row => line(row)),
      ].join('\n')
    })
    .join('\n\n')
}

/** Columns of each part; the first column is in all of them. */
function partsOf(widths: readonly number[], limit: number): number[][] {
  const parts: number[][] = []
  let part = [0]
  let used = INDENT + (widths[0] ?? 0)
  for (let c = 1; c < widths.length; c++) {
    if (part.length > 1 && used + GAP + widths[c]! > limit) {
      parts.push(part)
      part = [0]
      used = INDENT + widths[0]!
    }
    part.push(c)
    used += GAP + widths[c]!
  }
  return [...parts, part]
}

function pad(text: string, width: number, align: Column['align'] = 'left'): string {
  const fill = ' '.repeat(Math.max(0, width - columnsOf(text)))
  return align === 'right' ? fill + text : text + fill
}

const EIGHTHS = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉']

/** A bar of at most `width` characters, in eighths. */
export function bar(share: number, width: number): string {
  const eighths = Math.round(Math.min(1, Math.max(0, share)) * width * 8)
  return '█'.repeat(Math.floor(eighths / 8)) + EIGHTHS[eighths % 8]!
}

const LEVELS = '▁▂▃▄▅▆▇█'

/** One character per value, scaled from lowest to highest; at most `most` values, evenly spaced. */
export function sparkline(all: readonly number[], most = 48): string {
  const values =
    all.length <= most
      ? all
      : Array.from({ length: most }, (_, at) => all[Math.round((at * (all.length - 1)) / (most - 1))]!)
  const low = Math.min(...values)
  const span = Math.max(...values) - low
  return values
    .map(value => LEVELS[span > 0 ? Math.round(((value - low) / span) * (LEVELS.length - 1)) : 0])
    .join('')
}
