import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

/** Compares all hashes in constant time, so that timing reveals neither content nor length. */
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

/** Not all of 127.0.0.0/8: sidecar proxies use its other addresses. */
const LOOPBACK: ReadonlySet<string> = new Set(['127.0.0.1', '::1', '::ffff:127.0.0.1'])

/** Whether the client is on the local machine. */
export function isLoopback(request: IncomingMessage): boolean {
  return LOOPBACK.has(clientAddresses.get(request) ?? request.socket.remoteAddress ?? '')
}

const clientAddresses = new WeakMap<IncomingMessage, string>()

/** Records the client's address of a request that was passed on by another process of this gateway. */
export function setClientAddress(request: IncomingMessage, address: string): void {
  clientAddresses.set(request, address)
}

function bearerOf({ headers }: IncomingMessage): string | undefined {
  const match = /^bearer +(\S+)$/i.exec(headers.authorization ?? '')
  const key = match?.[1] ?? headers['x-api-key']
  return typeof key === 'string' ? key : undefined
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
