/**
 * A report is one file without scripts or external resources, so it can be mailed and archived. Its content
 * security policy makes the browser enforce that, whatever the data contains.
 */
import { element, together, trusted, type Child } from './markup.ts'
import { clipped } from './numbers.ts'
import { STYLE } from './style.ts'

export interface Page {
  readonly title: string
  /** One sentence, for search results and previews. */
  readonly description: string
  /** Version of eldr that wrote the page. */
  readonly version: string
  readonly header: Child
  readonly body: Child
  readonly footer: Child
}

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

export function page({ title, description, version, header, body, footer }: Page): string {
  const head = element(
    'head',
    {},
    element('meta', { charset: 'utf-8' }),
    element('meta', { 'http-equiv': 'Content-Security-Policy', content: POLICY }),
    element('meta', { name: 'viewport', content: 'width=device-width, initial-scale=1' }),
    element('meta', { name: 'color-scheme', content: 'light dark' }),
    element('meta', { name: 'description', content: clipped(description, 300) }),
    element('meta', { name: 'generator', content: `eldr ${version}` }),
    element('title', {}, title),
    element('style', {}, trusted(STYLE)),
  )
  const content = together(
    element('header', { class: 'top' }, header),
    element('main', {}, body),
    element('footer', {}, footer),
  )
  return `<!doctype html>\n${element('html', { lang: 'en' }, head, element('body', {}, content)).markup}\n`
}
