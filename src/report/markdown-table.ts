/** A Markdown table; the first `words` columns hold names, the others numbers, which are aligned right. */
export function markdownTable(
  head: readonly string[],
  words: number,
  rows: readonly (readonly string[])[],
): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [
    line(head),
    `|${head.map((_, at) => (at < words ? '---' : '---:')).join('|')}|`,
    ...rows.map(line),
  ].join('\n')
}
