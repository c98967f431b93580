/** Building blocks of pages: sections, figures with captions, facts, notes, tables. */
import { element, type Child, type Markup } from './markup.ts'

export function section(title: string, intro: Child, ...children: readonly Child[]): Markup {
  return element(
    'section',
    {},
    element('h2', {}, title),
    intro === undefined ? undefined : element('p', { class: 'intro' }, intro),
    children,
  )
}

/** Cards of equal height, side by side where there is room. */
export function grid(...cards: readonly Child[]): Markup {
  return element('div', { class: 'grid' }, cards)
}

/** The same for cards of independent heights. */
export function looseGrid(...cards: readonly Child[]): Markup {
  return element('div', { class: 'grid loose' }, cards)
}

export interface Figure {
  readonly title: string
  /** The result in a sentence. */
  readonly finding?: Child
  readonly legend?: Markup
  readonly chart: Child
  /** How to read it, the paper's figure, the source of the numbers. */
  readonly caption: Child
  readonly wide?: boolean
}

export function figure({ title, finding, legend, chart, caption, wide }: Figure): Markup {
  return element(
    'figure',
    { class: wide === true ? 'card wide' : 'card' },
    element('h3', {}, title),
    finding === undefined ? undefined : element('p', { class: 'finding' }, finding),
    legend,
    wide === true ? scroll(title, chart) : chart,
    element('figcaption', {}, element('p', {}, caption)),
  )
}

/** Terms and values. Long values are two columns wide. */
export function facts(
  list: readonly { readonly term: string; readonly value: Child; readonly long?: boolean }[],
  small = false,
): Markup {
  return element(
    'dl',
    { class: small ? 'facts small' : 'facts' },
    list.map(({ term, value, long }) =>
      element(
        'div',
        { class: long === true ? 'long' : undefined },
        element('dt', {}, term),
        element('dd', {}, value),
      ),
    ),
  )
}

export function notes(list: readonly string[]): Markup | undefined {
  if (list.length === 0) return undefined
  const items = list.map(note => element('li', {}, note))
  return element(
    'aside',
    { class: 'card notes' },
    element('h3', {}, list.length === 1 ? 'Note' : 'Notes'),
    element('ul', {}, items),
  )
}

export interface Column {
  readonly title: string
  readonly kind?: 'number' | 'parts'
}

export interface Table {
  readonly title: string
  readonly finding?: Child
  readonly columns: readonly Column[]
  /** The first cell of a row is its name. */
  readonly rows: readonly (readonly Child[])[]
  readonly foot?: readonly Child[]
  readonly caption: Child
  readonly legend?: Markup
  readonly wide?: boolean
}

/** A long table scrolls in its card; in print it runs over pages. */
const TALL = 24

export function table({ title, finding, columns, rows, foot, caption, legend, wide }: Table): Markup {
  return element(
    'figure',
    { class: wide === true ? 'card table wide' : 'card table' },
    element('h3', {}, title),
    finding === undefined ? undefined : element('p', { class: 'finding' }, finding),
    legend,
    bareTable(title, columns, rows, foot),
    element('figcaption', {}, element('p', {}, caption)),
  )
}

/** A table without a card; `label` is for screen readers. */
export function bareTable(
  label: string,
  columns: readonly Column[],
  rows: readonly (readonly Child[])[],
  foot?: readonly Child[],
): Markup {
  const cell = (tag: 'th' | 'td', scope: string | undefined, at: number, content: Child) =>
    element(tag, { scope, class: columns[at]?.kind }, content)
  const row = (cells: readonly Child[]) =>
    element(
      'tr',
      {},
      cells.map((content, at) =>
        at === 0 ? cell('th', 'row', at, content) : cell('td', undefined, at, content),
      ),
    )
  const head = element(
    'tr',
    {},
    columns.map(({ title }, at) => cell('th', 'col', at, title)),
  )
  return scroll(
    label,
    element(
      'table',
      {},
      element('thead', {}, head),
      element('tbody', {}, rows.map(row)),
      foot === undefined ? undefined : element('tfoot', {}, row(foot)),
    ),
    rows.length > TALL,
  )
}

/** Wide content scrolls separately from the page; focusable, so that it can be scrolled with the keyboard. */
export function scroll(label: string, content: Child, tall = false): Markup {
  return element(
    'div',
    { class: tall ? 'scroll tall' : 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
    content,
  )
}
