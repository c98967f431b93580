/** docs/evidence/results.md, made from two saved reports: that of the whole traces, and that of the cut which ships. */
import type { ExhibitReport } from '../report/exhibit.ts'
import { exhibitMarkdown } from '../report/exhibit-markdown.ts'

export function resultsPage(whole: ExhibitReport, cut: ExhibitReport): string {
  return [
    '# Results',
    '',
    'Every table and figure of the paper that a trace can give, ours beside the paper’s, and what lies beyond it. First the [whole traces](#whole-traces), which are too large to ship, then the [cut](#shipped-cut) that does: its figures are what `eldr reproduce` gives on any machine, in a minute or two, with every chart in `eldr-out/results.html`.',
    '',
    part('whole-traces', { ...whole, title: 'The whole traces' }),
    part('shipped-cut', { ...cut, title: 'The shipped cut' }, 'cut-'),
    'This page is made by `npm run docs` from `docs/evidence/results/whole.json` and `docs/evidence/results/cut.json`, which `node scripts/results.mjs` makes anew.',
    '',
  ].join('\n')
}

/** A page has one first heading, so those of a report go one down; `prefix` keeps the anchors of two reports apart. */
function part(anchor: string, report: ExhibitReport, prefix = ''): string {
  const sections = report.sections.map(section => ({
    ...section,
    exhibits: section.exhibits.map(exhibit => ({ ...exhibit, id: `${prefix}${exhibit.id}` })),
  }))
  return `<a id="${anchor}"></a>\n\n${exhibitMarkdown({ ...report, sections }).replace(/^#/gm, '##')}`
}
