/** A report of exhibits as Markdown that GitHub shows as it is meant: the tables and the words; charts are in the HTML report alone. */
import type { Exhibit, ExhibitReport, ExhibitTable } from './exhibit.ts'
import { cellText, isNumeric } from './exhibit-cells.ts'
import { printable } from './markup.ts'

export function exhibitMarkdown({ title, intro, facts, sections, footer }: ExhibitReport): string {
  const blocks = [
    `# ${inline(title)}`,
    block(intro),
    facts.map(({ term, value }) => `- **${inline(term)}**: ${inline(value)}`).join('\n'),
    ...sections.flatMap(({ title, intro, exhibits }) => [
      `## ${inline(title)}`,
      ...(intro === undefined ? [] : [block(intro)]),
      ...exhibits.flatMap(exhibitBlocks),
    ]),
    block(footer),
  ]
  return `${blocks.filter(text => text !== '').join('\n\n')}\n`
}

function exhibitBlocks({ id, title, finding, notes, paper, source, tables, charts }: Exhibit): string[] {
  const figures = charts.map(chart => inline(chart.title)).join('; ')
  return [
    `<a id="${id.replace(/[^A-Za-z0-9-]/g, '')}"></a>`,
    `### ${inline(title)}`,
    block(finding),
    ...tables.flatMap(tableBlocks),
    figures === '' ? '' : `Drawn in the HTML report: ${figures}.`,
    (notes ?? []).map(note => `- ${inline(note)}`).join('\n'),
    ...(paper === undefined
      ? []
      : [`**The paper:** ${inline(paper.finding)} **Why ours differs:** ${inline(paper.differs)}`]),
    `Source: ${inline(source)}`,
  ]
}

function tableBlocks(table: ExhibitTable): string[] {
  if (table.columns.length === 0) return []
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  const rule = `|${table.columns.map((_, at) => (isNumeric(table, at) ? '---:' : '---')).join('|')}|`
  const rows = table.rows.map(row => line(table.columns.map((_, at) => inline(cellText(row[at])))))
  return [
    ...(table.title === undefined ? [] : [`**${inline(table.title)}**`]),
    [line(table.columns.map(inline)), rule, ...rows].join('\n'),
  ]
}

/** Text on one line in which nothing is markup. Underscores between letters are none for GitHub either, and names are full of them. */
function inline(text: string): string {
  return printable(text)
    .replace(/\s+/g, ' ')
    .trim()
    .replace(/[\\`*[\]<>|~$]|&(?=#?\w+;)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])/g, '\\$&')
}

/** A paragraph of its own, which must not begin like a heading or a list. */
function block(text: string): string {
  return inline(text).replace(/^(?:[#+-](?=\s|#|$)|\d+(?=[.)](?:\s|$)))/, start =>
    /^\d/.test(start) ? `${start}\\` : `\\${start}`,
  )
}
