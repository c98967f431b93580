/**
 * Who may use the admin API. With a token set, whoever brings it, from anywhere; keys for /v1 open nothing here. Without one, the machine
 * itself: but a proxy on it speaks for others, and so does a browser that shows somebody else's page.
 */
import type { IncomingMessage } from 'node:http'
import { Refusal } from './refusal.ts'
import { createKeyCheck, isLoopback } from './auth.ts'

/** Throws when the request may not. */
export function createGuard(adminToken: string | undefined): (request: IncomingMessage) => void {
  if (adminToken !== undefined) {
    const brings = createKeyCheck([adminToken])
    return request => {
      if (!brings(request))
        throw new Refusal('ELDR_UNAUTHORIZED', {
          words: 'The admin token is needed: Authorization: Bearer TOKEN.',
        })
    }
  }
  return request => {
    if (!isFromHere(request)) throw new Refusal('ELDR_FORBIDDEN')
  }
}

/** From the machine itself, and in nobody else's name. */
export function isFromHere(request: IncomingMessage): boolean {
  return isLoopback(request) && !isForwarded(request) && isOwnPage(request)
}

/** What proxies add. One that adds nothing looks like the machine itself: behind a proxy a token must be set. */
const FORWARDED =
  /^(?:forwarded|via|x-real-ip|(?:x-|true-|x-cluster-)client-ip|(?:x-forwarded|x-envoy|x-original|x-amzn|x-arr|x-azure|x-appengine|cf|fastly|fly)-.*)$/

function isForwarded({ headers }: IncomingMessage): boolean {
  return Object.keys(headers).some(name => FORWARDED.test(name))
}

/** A page of another site may send requests to this machine; its name, or that of a name that was pointed here, stands in their headers. */
function isOwnPage({ headers }: IncomingMessage): boolean {
  const { host = '', origin } = headers
  const name = host.replace(/:\d+$/, '')
  const isLocal = name === 'localhost' || name === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(name)
  return isLocal && (origin === undefined || origin === `http://${host}` || origin === `https://${host}`)
}
