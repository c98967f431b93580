/** The gateway's own routes at a relay: the owner answers, and the relay passes it on. What needs no owner is answered here. */
import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http'
import { VERSION } from '../../../version.ts'
import { Refusal } from '../../http/refusal.ts'
import type { Exchange } from '../../http/exchange.ts'
import type { Pages } from '../../flow/handle.ts'
import type { Outcome } from '../../observe/request-observer.ts'
import type { OwnRoute } from '../../http/routes.ts'

/** From where the client asked. A client that sends it is not listened to. */
export const FROM_HEADER = 'x-eldr-from'

const PATIENCE_MS = 2_000
const AGAIN_MS = 20
/** Headers that are about one connection. */
const HOP = new Set([
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
    return this.#pass(exchange)
  }

  servePage(exchange: Exchange): Promise<Outcome> {
    return this.#pass(exchange)
  }

  async serveOwn(exchange: Exchange, name: OwnRoute, draining: boolean): Promise<Outcome> {
    const here = name === 'health' ? { status: 'ok' } : name === 'version' ? { version: VERSION } : undefined
    if (here === undefined && name !== 'ready') return this.#pass(exchange)
    if (name === 'ready' && !draining) {
      const away = await this.#pass(exchange).catch((error: unknown) => error)
      if (!(away instanceof Refusal)) return away as Outcome
    }
    // Without an owner no worker is known.
    const body = here ?? { status: draining ? 'draining' : 'waiting for workers', prefill: 0, decode: 0 }
    exchange.answer(
      here ? 200 : 503,
      { 'content-type': 'application/json', 'cache-control': 'no-store' },
      JSON.stringify(body),
    )
    return 'ok'
  }

  /** An owner that is being replaced is waited for, as long as nothing of the body has been sent. */
  async #pass(exchange: Exchange): Promise<Outcome> {
    const untilMs = performance.now() + PATIENCE_MS
    for (;;) {
      const upstream = await this.#connected(exchange)
      if (exchange.stopped !== undefined) {
        upstream?.destroy()
        return 'client_gone'
      }
      if (upstream !== undefined) return this.#exchange(exchange, upstream)
      if (performance.now() > untilMs) throw new Refusal('ELDR_OWNER_AWAY', { retryAfterSeconds: 1 })
      await exchange.pause(AGAIN_MS)
    }
  }

  /** Undefined when nobody listens there. */
  #connected(exchange: Exchange): Promise<ClientRequest | undefined> {
    const { request } = exchange
    const headers: Record<string, string | string[]> = { connection: 'close', 'x-request-id': exchange.id }
    for (const [name, value] of Object.entries(request.headers))
      if (value !== undefined && !HOP.has(name)) headers[name] ??= value
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
        request.unpipe(upstream).resume() // of a body that nobody wanted
        resolve(outcome)
      }
      upstream.once('response', (answer: IncomingMessage) => {
        // What goes on for as long as its reader likes is no request that takes too long.
        if (String(answer.headers['content-type']).startsWith('text/event-stream')) exchange.removeTimeLimit()
        response.writeHead(answer.statusCode ?? 502, passed(answer))
        answer.pipe(response)
        answer.once('close', () => {
          if (!answer.complete) response.destroy()
          settle(outcomeOf(answer))
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

function passed({ headers }: IncomingMessage): Record<string, string | string[]> {
  const kept = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined || HOP.has(name) ? [] : [[name, value] as const],
  )
  return Object.fromEntries(kept)
}

/** A refusal says its code; an answer such as that of /ready is one whatever its status. */
function outcomeOf({ headers, statusCode = 502 }: IncomingMessage): Outcome {
  if (headers['x-eldr-error-code'] === undefined) return 'ok'
  return statusCode < 500 ? 'refused' : statusCode === 504 ? 'timeout' : 'failed'
}
