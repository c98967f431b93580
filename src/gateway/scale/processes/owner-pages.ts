/**
 * The gateway's own routes at a relay, forwarded to the owner. The relay itself serves those that need no
 * owner.
 */
import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http'
import { VERSION } from '../../../version.ts'
import { Refusal } from '../../http/refusal.ts'
import type { Exchange } from '../../http/exchange.ts'
import type { Pages } from '../../flow/handle.ts'
import type { Outcome } from '../../observe/request-observer.ts'
import type { OwnRoute } from '../../http/routes.ts'

/** Address of the client. Ignored if a client sends it. */
export const FROM_HEADER = 'x-eldr-from'

const OWNER_TIMEOUT_MS = 2_000
const RETRY_MS = 20
/** Hop-by-hop headers, which are not forwarded. */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'transfer-encoding',
  'upgrade',
  'te',
  'trailer',
  'proxy-connection',
  'expect',
  FROM_HEADER,
])

export class OwnerPages implements Pages {
  readonly #path: string

  constructor(path: string) {
    this.#path = path
  }

  async serve(exchange: Exchange, _: string, proceed: () => void): Promise<Outcome> {
    proceed()
    return this.#forward(exchange)
  }

  servePage(exchange: Exchange): Promise<Outcome> {
    return this.#forward(exchange)
  }

  async serveOwn(exchange: Exchange, name: OwnRoute, draining: boolean): Promise<Outcome> {
    const local = name === 'health' ? { status: 'ok' } : name === 'version' ? { version: VERSION } : undefined
    if (local === undefined && name !== 'ready') return this.#forward(exchange)
    if (name === 'ready' && !draining) {
      const result = await this.#forward(exchange).catch((error: unknown) => error)
      if (!(result instanceof Refusal)) return result as Outcome
    }
    // Without an owner no worker is known.
    const body = local ?? { status: draining ? 'draining' : 'waiting for workers', prefill: 0, decode: 0 }
    exchange.answer(
      local ? 200 : 503,
      { 'content-type': 'application/json', 'cache-control': 'no-store' },
      JSON.stringify(body),
    )
    return 'ok'
  }

  /** Waits for an owner that is being replaced: no part of the body has been sent yet. */
  async #forward(exchange: Exchange): Promise<Outcome> {
    const untilMs = performance.now() + OWNER_TIMEOUT_MS
    for (;;) {
      const upstream = await this.#connect(exchange)
      if (exchange.stopped !== undefined) {
        upstream?.destroy()
        return 'client_gone'
      }
      if (upstream !== undefined) return this.#exchange(exchange, upstream)
      if (performance.now() > untilMs) throw new Refusal('ELDR_OWNER_AWAY', { retryAfterSeconds: 1 })
      await exchange.pause(RETRY_MS)
    }
  }

  /** Undefined if the owner does not listen. */
  #connect(exchange: Exchange): Promise<ClientRequest | undefined> {
    const { request } = exchange
    const headers: Record<string, string | string[]> = { connection: 'close', 'x-request-id': exchange.id }
    for (const [name, value] of Object.entries(request.headers))
      if (value !== undefined && !HOP_BY_HOP.has(name)) headers[name] ??= value
    if (request.headers['transfer-encoding'] !== undefined) headers['transfer-encoding'] = 'chunked'
    headers[FROM_HEADER] = request.socket.remoteAddress ?? ''
    return new Promise(resolve => {
      const upstream = httpRequest({
        socketPath: this.#path,
        method: request.method,
        path: request.url,
        headers,
        agent: false,
      })
      upstream.once('error', () => resolve(undefined))
      upstream.once('socket', socket => socket.once('connect', () => resolve(upstream)))
    })
  }

  #exchange(exchange: Exchange, upstream: ClientRequest): Promise<Outcome> {
    const { request, response } = exchange
    return new Promise((resolve, reject) => {
      const gone = () => upstream.destroy()
      response.once('close', gone)
      const unhook = exchange.onStop(gone)
      const settle = (outcome: Outcome) => {
        unhook()
        response.off('close', gone)
        request.unpipe(upstream).resume() // discard the rest of the body
        resolve(outcome)
      }
      upstream.once('response', (received: IncomingMessage) => {
        // Event streams are open for as long as the client reads them: no request timeout.
        if (String(received.headers['content-type']).startsWith('text/event-stream'))
          exchange.removeTimeLimit()
        response.writeHead(received.statusCode ?? 502, forwardedHeaders(received))
        received.pipe(response)
        received.once('close', () => {
          if (!received.complete) response.destroy()
          settle(outcomeOf(received))
        })
      })
      upstream.on('error', () => {
        if (response.headersSent || exchange.stopped === 'client_gone') return settle('client_gone')
        unhook()
        return reject(exchange.refusal ?? new Refusal('ELDR_OWNER_AWAY', { retryAfterSeconds: 1 }))
      })
      request.pipe(upstream)
    })
  }
}

function forwardedHeaders({ headers }: IncomingMessage): Record<string, string | string[]> {
  const kept = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined || HOP_BY_HOP.has(name) ? [] : [[name, value] as const],
  )
  return Object.fromEntries(kept)
}

/** A refusal has a code. Other responses, such as that of /ready, are successful whatever their status. */
function outcomeOf({ headers, statusCode = 502 }: IncomingMessage): Outcome {
  if (headers['x-eldr-error-code'] === undefined) return 'ok'
  return statusCode < 500 ? 'refused' : statusCode === 504 ? 'timeout' : 'failed'
}
