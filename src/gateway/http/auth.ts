import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

/** Compares hashes, all of them, so that neither the time nor the length tells how near a guess is. */
export function createSecretCheck(
  secrets: readonly string[],
  areEqual = timingSafeEqual,
): (given: string) => boolean {
  const digests = secrets.map(digestOf)
  return given => {
    const digest = digestOf(given)
    return digests.reduce((found, known) => areEqual(known, digest) || found, false)
  }
}

export function createKeyCheck(
  keys: readonly string[],
  areEqual = timingSafeEqual,
): (request: IncomingMessage) => boolean {
  const isKnown = createSecretCheck(keys, areEqual)
  return request => {
    const given = bearerOf(request)
    return given !== undefined && isKnown(given)
  }
}

/** Not all of 127.0.0.0/8: proxies beside a pod's programs come from other addresses of it. */
const LOOPBACK: ReadonlySet<string> = new Set(['127.0.0.1', '::1', '::ffff:127.0.0.1'])

/** Clients without a token of their own may look and change only from the machine itself. */
export function isLoopback(request: IncomingMessage): boolean {
  return LOOPBACK.has(spokenFor.get(request) ?? request.socket.remoteAddress ?? '')
}

const spokenFor = new WeakMap<IncomingMessage, string>()

/** The request came through another process of this gateway, which was asked from this address. */
export function comesFrom(request: IncomingMessage, address: string): void {
  spokenFor.set(request, address)
}

function bearerOf({ headers }: IncomingMessage): string | undefined {
  const match = /^bearer +(\S+)$/i.exec(headers.authorization ?? '')
  const key = match?.[1] ?? headers['x-api-key']
  return typeof key === 'string' ? key : undefined
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
