import { coordinate } from './numbers.ts'

/**
 * HTML and SVG as values. Names of domains, models and files come from untrusted traces, so a plain string is
 * always escaped text; only results of `element` (and our constants, through `trusted`) are markup. The
 * output is well-formed XML, which the tests check.
 */
export interface Markup {
  readonly markup: string
}

export type Child = Markup | string | undefined | readonly Child[]
/** Numbers become coordinates: short, and never NaN. An undefined value leaves the attribute out. */
export type Attributes = Readonly<Record<string, string | number | undefined>>

/** May end with `/>` when empty: HTML's void elements and SVG shapes (which may hold a tooltip). */
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

/** Siblings without a parent. */
export function together(...children: readonly Child[]): Markup {
  return { markup: write(children) }
}

/** Only for constants of this source tree (the style sheet), never for data. */
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

/** Safe between tags and inside quotes of both kinds. */
export function escaped(text: string): string {
  return printable(text).replace(/[&<>"']/g, character => ENTITY[character]!)
}

/**
 * Removes invisible characters that browsers act on: control characters and lone surrogates are not allowed
 * in XML, and bidirectional overrides in a name would reverse the text after it.
 */
export function printable(text: string): string {
  return text.replace(/\p{Cs}|(?![\t\n\r])\p{Cc}|[\u202a-\u202e\u2066-\u2069\ufffe\uffff]/gu, '\ufffd')
}
