/** A report of exhibits as GitHub Markdown: texts and tables. Charts are in the HTML report only. */
import type { Exhibit, ExhibitReport, ExhibitTable } from './exhibit.ts'
import { cellText, isNumeric } from './exhibit-cells.ts'
import { printable } from './markup.ts'

/** Markdown that a page adds to each exhibit. */
export interface ExhibitAdditions {
  /** Below the heading. */
  readonly before?: (exhibit: Exhibit) => readonly string[]
  /** At the end of the exhibit. */
  readonly after?: (exhibit: Exhibit) => readonly string[]
}

export function exhibitMarkdown(report: ExhibitReport, additions: ExhibitAdditions = {}): string {
  const { title, intro, facts, sections, footer } = report
  const blocks = [
    `# ${inline(title)}`,
    block(intro),
    facts.map(({ term, value }) => `- **${inline(term)}**: ${inline(value)}`).join('\n'),
    ...sections.flatMap(section => [
      `## ${inline(section.title)}`,
      block(section.intro ?? ''),
      ...section.exhibits.flatMap(exhibit => exhibitBlocks(exhibit, additions)),
    ]),
    block(footer),
  ]
  return `${blocks.filter(text => text !== '').join('\n\n')}\n`
}

function exhibitBlocks(exhibit: Exhibit, { before, after }: ExhibitAdditions): string[] {
  const { id, title, finding, notes = [], paper, source, tables, charts } = exhibit
  const figures = charts.map(chart => inline(chart.title)).join('; ')
  return [
    `<a id="${id.replace(/[^A-Za-z0-9-]/g, '')}"></a>`,
    `### ${inline(title)}`,
    ...(before?.(exhibit) ?? []),
    paper === undefined ? '' : `**Paper:** ${inline(paper.finding)}`,
    finding === '' ? '' : `**Ours:** ${inline(finding)}`,
    ...tables.flatMap(tableBlocks),
    figures === '' ? '' : `Charts in the HTML report: ${figures}.`,
    notes.map(note => `- ${inline(note)}`).join('\n'),
    paper === undefined ? '' : `**Why it differs:** ${inline(paper.differs)}`,
    `**Conditions:** ${inline(source)}`,
    ...(after?.(exhibit) ?? []),
  ]
}

function tableBlocks(table: ExhibitTable): string[] {
  if (table.columns.length === 0) return []
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  const rule = `|${table.columns.map((_, at) => (isNumeric(table, at) ? '---:' : '---')).join('|')}|`
  const rows = table.rows.map(row => line(table.columns.map((_, at) => inline(cellText(row[at])))))
  return [
    table.title === undefined ? '' : `**${inline(table.title)}**`,
    [line(table.columns.map(inline)), rule, ...rows].join('\n'),
  ]
}

/**
 * Escapes a text to one line without markup. Underscores inside words stay: GitHub does not read them as
 * markup.
 */
export function inline(text: string): string {
  return printable(text)
    .replace(/\s+/g, ' ')
    .trim()
    .replace(/[\\`*[\]<>|~$]|&(?=#?\w+;)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])/g, '\\$&')
}

/** A paragraph, escaped so that it does not begin like a heading or a list. */
function block(text: string): string {
  return inline(text).replace(/^(?:[#+-](?=\s|#|$)|\d+(?=[.)](?:\s|$)))/, start =>
    /^\d/.test(start) ? `${start}\\` : `\\${start}`,
  )
}
