/** A report of exhibits as one HTML page: sources, table of contents, and a card per exhibit. */
import { bareTable, facts, grid, scroll, section } from './blocks.ts'
import type { Exhibit, ExhibitChart, ExhibitReport, ExhibitTable } from './exhibit.ts'
import { cellText, isNumeric } from './exhibit-cells.ts'
import { createColours, exhibitChart, type Colours } from './exhibit-charts.ts'
import { element, together, type Markup } from './markup.ts'
import { clipped } from './numbers.ts'
import { page } from './page.ts'

/** Longer tables are cut; the JSON has all rows. */
const MAX_ROWS = 512
/** Tables with more columns take the full width of the card and page. */
const NARROW_COLUMNS = 4
/** A longer fact is two columns wide. */
const LONG_FACT = 34

export function exhibitPage(report: ExhibitReport, version: string): string {
  checkIds(report)
  const colours = createColours(
    report.sections.flatMap(({ exhibits }) => exhibits.flatMap(({ charts }) => charts)),
  )
  return page({
    title: clipped(report.title, 100),
    description: report.intro,
    version,
    header: together(
      element('p', { class: 'eyebrow' }, 'ELDR report'),
      element('h1', {}, clipped(report.title, 200)),
      element('p', { class: 'lede' }, report.intro),
      facts(
        report.facts.map(({ term, value }) => ({
          term,
          value: clipped(value, 400),
          long: value.length > LONG_FACT,
        })),
      ),
      contents(report),
    ),
    body: report.sections.map(({ title, intro, exhibits }) =>
      section(
        title,
        intro,
        grid(withWidths(exhibits).map(({ exhibit, wide }) => card(exhibit, wide, colours))),
      ),
    ),
    footer: element('p', {}, report.footer),
  })
}

/** Ids are anchors that other pages link to. They come from our code, so a wrong one is a bug. */
function checkIds({ sections }: ExhibitReport): void {
  const ids = sections.flatMap(({ exhibits }) => exhibits.map(({ id }) => id))
  const wrong = ids.find((id, at) => !/^[A-Za-z][A-Za-z0-9-]*$/.test(id) || ids.indexOf(id) < at)
  if (wrong !== undefined)
    throw new RangeError(
      `exhibit id ${JSON.stringify(wrong)} is used twice or has characters other than letters, digits and dashes`,
    )
}

function contents({ sections }: ExhibitReport): Markup | undefined {
  if (sections.reduce((sum, { exhibits }) => sum + exhibits.length, 0) < 2) return undefined
  const link = ({ id, title }: Exhibit) =>
    element('li', {}, element('a', { href: `#${id}` }, clipped(title, 120)))
  return element(
    'nav',
    { class: 'contents', 'aria-label': 'Contents' },
    sections.map(({ title, exhibits }) =>
      element('div', {}, element('p', {}, clipped(title, 120)), element('ul', {}, exhibits.map(link))),
    ),
  )
}

/** Two narrow cards share a row; a card that would be alone in its row takes the full width. */
function withWidths(exhibits: readonly Exhibit[]): { readonly exhibit: Exhibit; readonly wide: boolean }[] {
  const isOne = ({ charts, tables }: Exhibit) =>
    charts.length > 1 || charts.some(isWide) || tables.some(isWideTable)
  let isSecond = false
  return exhibits.map((exhibit, at) => {
    const next = exhibits[at + 1]
    const wide = isOne(exhibit) || (!isSecond && (next === undefined || isOne(next)))
    isSecond = !wide && !isSecond
    return { exhibit, wide }
  })
}

function card(
  { id, title, finding, notes, paper, source, charts, tables }: Exhibit,
  wide: boolean,
  colours: Colours,
): Markup {
  return element(
    'figure',
    { class: wide ? 'card exhibit wide' : 'card exhibit', id },
    element('h3', {}, title),
    element('p', { class: 'finding' }, finding),
    element(
      'div',
      { class: 'panels' },
      charts.map((chart, at) =>
        chartPanel(chart, `${id}-chart-${at + 1}`, charts.length > 1 || chart.title !== title, colours),
      ),
      tables.map(table => tablePanel(table, title)),
    ),
    notes !== undefined && notes.length > 0
      ? element(
          'ul',
          { class: 'remarks' },
          notes.map(note => element('li', {}, note)),
        )
      : undefined,
    paper &&
      element(
        'p',
        { class: 'paper' },
        element('b', {}, 'Paper: '),
        paper.finding,
        element('b', {}, ' Why it differs: '),
        paper.differs,
      ),
    element('figcaption', {}, element('p', {}, source)),
  )
}

const isWide = ({ kind }: ExhibitChart): boolean => kind === 'heat'
const isWideTable = ({ columns }: ExhibitTable): boolean => columns.length > NARROW_COLUMNS

function chartPanel(chart: ExhibitChart, id: string, titled: boolean, colours: Colours): Markup {
  const drawn = exhibitChart(chart, id, colours)
  return element(
    'div',
    { class: isWide(chart) ? 'panel full' : 'panel' },
    titled ? element('h4', {}, chart.title) : undefined,
    isWide(chart) ? scroll(chart.title, drawn) : drawn,
  )
}

function tablePanel(table: ExhibitTable, exhibitTitle: string): Markup {
  const columns = table.columns.map((title, at) =>
    isNumeric(table, at) ? ({ title, kind: 'number' } as const) : { title },
  )
  const rows = table.rows.slice(0, MAX_ROWS).map(row => columns.map((_, at) => cellText(row[at])))
  const left = table.rows.length - rows.length
  return element(
    'div',
    { class: isWideTable(table) ? 'panel full' : 'panel' },
    table.title === undefined ? undefined : element('h4', {}, table.title),
    bareTable(table.title ?? exhibitTitle, columns, rows),
    left > 0 ? element('p', { class: 'quiet' }, `${left} more rows not shown.`) : undefined,
  )
}
