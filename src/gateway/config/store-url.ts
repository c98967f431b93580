/** The address of a Redis or Valkey: checked, and without its password where people see it. */
import { MASK } from './mask-text.ts'

export const STORE_EXAMPLE = 'redis://10.0.0.9:6379'
const SCHEMES = ['redis:', 'rediss:', 'valkey:', 'valkeys:']

/** What is wrong with a text as the address of a store; undefined when nothing. It never repeats a password. */
export function wrongStore(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !SCHEMES.includes(url.protocol) || url.hostname === '')
    return `expected a URL such as ${STORE_EXAMPLE}; its scheme is one of ${SCHEMES.map(scheme => scheme.slice(0, -1)).join(', ')}`
  if (decoded(url.password) === MASK)
    return 'this is a masked password, as `eldr config print` shows it: put in the real one'
  if (decoded(url.password) === undefined || decoded(url.username) === undefined)
    return 'expected what is behind a % in user and password to be two hexadecimal digits'
  if (!/^\/?\d*$/.test(url.pathname))
    return 'expected nothing behind the address but the number of a database, such as /0'
  return url.search === '' && url.hash === ''
    ? undefined
    : 'expected nothing behind the number of the database'
}

/** A password may have an @ in it: the last one is before the host. */
export function maskedStore(text: string): string {
  return text.replace(/^(\w+:\/\/[^:/?#@]*):[^/?#]*@/, `$1:${MASK}@`)
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}
