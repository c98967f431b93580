/**
 * Error responses to requests whose body has not been read. A small rest is read and discarded, and the
 * connection stays open. Otherwise the connection closes after the response, or the rest would be parsed as
 * the next request. It closes only after the client has had time to read: a socket that is closed while bytes
 * arrive is reset, and a reset discards the response.
 */
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { errorBody, type Refusal } from './refusal.ts'
import type { Exchange } from './exchange.ts'

/** Reading less than this is cheaper than a new connection. */
const SMALL_BYTES = 65_536
const LINGER_MS = 5_000

export function refuse(exchange: Exchange, refusal: Refusal): void {
  const { request, response } = exchange
  if (response.headersSent || response.destroyed) return
  exchange.told = refusal.code
  const headers = {
    'content-type': 'application/json',
    'x-eldr-error-code': refusal.code,
    ...(refusal.status === 401 && { 'www-authenticate': 'Bearer' }),
    ...(refusal.retryAfterSeconds !== undefined && { 'retry-after': String(refusal.retryAfterSeconds) }),
  }
  const body = errorBody(refusal)
  if (request.complete || (response.shouldKeepAlive && restIsSmall(request)))
    return exchange.answer(refusal.status, headers, body)
  const length = String(Buffer.byteLength(body))
  response.shouldKeepAlive = false
  response.writeHead(refusal.status, {
    ...exchange.headers,
    'x-request-id': exchange.id,
    ...headers,
    'content-length': length,
  })
  // Responses to earlier requests of the connection go first.
  if (response.socket === null) return void response.end(body)
  if (request.method === 'HEAD') response.flushHeaders()
  else response.write(body)
  endGently(response.socket)
  request.once('end', () => request.socket.destroySoon())
  request.resume()
}

/** Ends the sending side, and keeps reading for a while. */
export function endGently(socket: Socket, lastBytes = ''): void {
  const timer = setTimeout(() => socket.destroy(), LINGER_MS)
  socket.once('close', () => clearTimeout(timer))
  socket.end(lastBytes)
}

/** A client that expects 100 Continue may never send its body: then there is no rest to wait for. */
function restIsSmall({ headers }: IncomingMessage): boolean {
  if (headers.expect !== undefined || headers['transfer-encoding'] !== undefined) return false
  return Number(headers['content-length'] ?? 0) <= SMALL_BYTES
}
