// Tables as text and Markdown, and the line that names machine, version, date and seed.
import { cpus } from 'node:os'

const isNumber = cell => /^[−+-]?[\d,.]+( ?(ms|s|µs|MB|GB|×))?$/.test(cell) || cell === '–'

const marks = row => `| ${row.join(' | ')} |`

/** {text, markdown} of rows of cells. Columns of numbers, with or without units, are right-aligned. */
export function table(head, rows) {
  const cells = rows.map(row => row.map(String))
  const right = head.map((_, c) => cells.every(row => isNumber(row[c])))
  const width = head.map((name, c) => Math.max(name.length, ...cells.map(row => row[c].length)))
  const pad = (cell, c) => (right[c] ? cell.padStart(width[c]) : cell.padEnd(width[c]))
  const line = row => row.map(pad).join('  ').trimEnd()
  return {
    text: [line(head), width.map(w => '─'.repeat(w)).join('  '), ...cells.map(line)].join('\n'),
    markdown: [marks(head), `|${right.map(r => (r ? '---:' : '---')).join('|')}|`, ...cells.map(marks)].join(
      '\n',
    ),
  }
}

/** Machine, Node version, date and seed, for the top of every report. */
export function header(seed) {
  const all = cpus()
  const model = all[0]?.model.replace(/\s+/g, ' ').trim() || 'unknown CPU'
  return `${model}, ${all.length} core${all.length === 1 ? '' : 's'}, Node ${process.version}, ${new Date().toISOString().slice(0, 10)}, seed ${seed}`
}

export const ms = value =>
  value === undefined
    ? '–'
    : value < 10
      ? `${value.toFixed(2)} ms`
      : value < 10_000
        ? `${value.toFixed(0)} ms`
        : `${(value / 1e3).toFixed(1)} s`
export const us = value => (value === undefined ? '–' : `${(value * 1e3).toFixed(1)} µs`)
export const mb = bytes => (bytes === undefined ? '–' : `${(bytes / 1e6).toFixed(0)} MB`)
/** Ratio of two times. */
export const times = (slow, fast) =>
  slow === undefined || fast === undefined ? '–' : `${(slow / fast).toFixed(slow / fast < 10 ? 1 : 0)} ×`
