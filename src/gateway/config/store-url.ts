/** Validates the URL of a Redis or Valkey store and masks its password. */
import { MASK } from './mask-text.ts'

export const STORE_EXAMPLE = 'redis://10.0.0.9:6379'
const SCHEMES = ['redis:', 'rediss:', 'valkey:', 'valkeys:']

/** Why a text is not the URL of a store; undefined if it is one. Never contains the password. */
export function storeUrlProblem(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !SCHEMES.includes(url.protocol) || url.hostname === '')
    return `expected a URL such as ${STORE_EXAMPLE}; its scheme is one of ${SCHEMES.map(scheme => scheme.slice(0, -1)).join(', ')}`
  if (decoded(url.password) === MASK)
    return 'this is a password masked by `eldr config print`: use the real one'
  if (decoded(url.password) === undefined || decoded(url.username) === undefined)
    return 'expected two hexadecimal digits after each % in user and password'
  if (!/^\/?\d*$/.test(url.pathname)) return 'expected only a database number after the address, such as /0'
  return url.search === '' && url.hash === '' ? undefined : 'expected nothing after the database number'
}

/** A password may contain @: the last one precedes the host. */
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
