/**
 * Refusals of requests whose body has not been read. A little of it is read and thrown away, and the connection goes on. Otherwise the
 * connection ends with the answer, or the rest would be taken for the next request; but not before the client had time to read it: a
 * socket that is closed while bytes arrive is reset, and a reset takes the answer away from a client that is still sending.
 */
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { errorBody, type Refusal } from './refusal.ts'
import type { Exchange } from './exchange.ts'

/** Less than this costs less to read than a new connection. */
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
  // Answers to earlier requests are still under way: those go first, and theirs is the connection.
  if (response.socket === null) return void response.end(body)
  if (request.method === 'HEAD') response.flushHeaders()
  else response.write(body)
  endGently(response.socket)
  request.once('end', () => request.socket.destroySoon())
  request.resume()
}

/** Says that nothing more comes, and goes on reading for a while. */
export function endGently(socket: Socket, lastBytes = ''): void {
  const timer = setTimeout(() => socket.destroy(), LINGER_MS)
  socket.once('close', () => clearTimeout(timer))
  socket.end(lastBytes)
}

/** A client that waits for leave to send its body may not send it any more: then there is no rest to wait for. */
function restIsSmall({ headers }: IncomingMessage): boolean {
  if (headers.expect !== undefined || headers['transfer-encoding'] !== undefined) return false
  return Number(headers['content-length'] ?? 0) <= SMALL_BYTES
}
