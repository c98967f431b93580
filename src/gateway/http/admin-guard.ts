/**
 * Access to the admin API. With a token set, any client that sends it, from anywhere; API keys for /v1 do not
 * count. Without a token, clients on the local machine only, except proxies and browser pages of other sites,
 * which act for others.
 */
import type { IncomingMessage } from 'node:http'
import { Refusal } from './refusal.ts'
import { createKeyCheck, isLoopback } from './auth.ts'

/** Throws a Refusal if the request has no access. */
export function createGuard(adminToken: string | undefined): (request: IncomingMessage) => void {
  if (adminToken !== undefined) {
    const brings = createKeyCheck([adminToken])
    return request => {
      if (!brings(request))
        throw new Refusal('ELDR_UNAUTHORIZED', {
          words: 'Admin token required: Authorization: Bearer TOKEN.',
        })
    }
  }
  return request => {
    if (!isFromHere(request)) throw new Refusal('ELDR_FORBIDDEN')
  }
}

/** From the local machine, and not on behalf of another client. */
export function isFromHere(request: IncomingMessage): boolean {
  return isLoopback(request) && !isForwarded(request) && isOwnPage(request)
}

/**
 * Headers that proxies add. A proxy that adds none looks like a local client, so a gateway behind a proxy
 * needs a token.
 */
const FORWARDED =
  /^(?:forwarded|via|x-real-ip|(?:x-|true-|x-cluster-)client-ip|(?:x-forwarded|x-envoy|x-original|x-amzn|x-arr|x-azure|x-appengine|cf|fastly|fly)-.*)$/

function isForwarded({ headers }: IncomingMessage): boolean {
  return Object.keys(headers).some(name => FORWARDED.test(name))
}

/**
 * Browser pages of other sites can send requests here; Host and Origin give them away, also with DNS
 * rebinding.
 */
function isOwnPage({ headers }: IncomingMessage): boolean {
  const { host = '', origin } = headers
  const name = host.replace(/:\d+$/, '')
  const isLocal = name === 'localhost' || name === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(name)
  return isLocal && (origin === undefined || origin === `http://${host}` || origin === `https://${host}`)
}
