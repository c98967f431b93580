import { coordinate } from './numbers.ts'

/**
 * HTML and SVG as values. Names of domains, models and files come from traces that anyone may have made, so a plain string is always
 * text and always escaped; only what `element` built (and our own constants, through `trusted`) is markup. Everything it writes is also
 * well-formed XML, which is what the tests check.
 */
export interface Markup {
  readonly markup: string
}

export type Child = Markup | string | undefined | readonly Child[]
/** Numbers become coordinates: short, and never NaN. An undefined value leaves the attribute out. */
export type Attributes = Readonly<Record<string, string | number | undefined>>

/** May end with `/>` when they hold nothing: the void elements of HTML, and the shapes of SVG (which may hold a tooltip). */
const EMPTY = new Set(['meta', 'br', 'hr', 'wbr', 'path', 'rect', 'line', 'circle', 'polygon', 'polyline'])

export function element(name: string, attributes: Attributes, ...children: readonly Child[]): Markup {
  let open = `<${name}`
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined)
      open += ` ${key}="${typeof value === 'number' ? coordinate(value) : escaped(value)}"`
  }
  const content = write(children)
  return { markup: content === '' && EMPTY.has(name) ? `${open}/>` : `${open}>${content}</${name}>` }
}

/** Siblings without a parent of their own. */
export function together(...children: readonly Child[]): Markup {
  return { markup: write(children) }
}

/** Constants of this source tree only (the style sheet): never anything that was read. */
export function trusted(markup: string): Markup {
  return { markup }
}

function write(child: Child): string {
  if (child === undefined) return ''
  if (typeof child === 'string') return escaped(child)
  if ('markup' in child) return child.markup
  let all = ''
  for (const one of child) all += write(one)
  return all
}

const ENTITY: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

/** Safe between tags and inside quotes of either kind. */
export function escaped(text: string): string {
  return printable(text).replace(/[&<>"']/g, character => ENTITY[character]!)
}

/**
 * Without what no reader can see but a browser acts on: control characters and halves of surrogate pairs are not allowed in XML, and
 * bidirectional overrides in a name would turn round the text after it.
 */
export function printable(text: string): string {
  return text.replace(/\p{Cs}|(?![\t\n\r])\p{Cc}|[\u202a-\u202e\u2066-\u2069\ufffe\uffff]/gu, '\ufffd')
}
