/** The gateway's own routes: is it well, what does it count, and the admin API under /eldr. */
import type { IncomingMessage } from 'node:http'
import { VERSION } from '../../version.ts'
import { Refusal } from '../answers.ts'
import type { Exchange } from '../exchange.ts'
import type { Outcome } from '../metrics.ts'
import { EventStreams } from './event-stream.ts'
import type { Events } from './events.ts'
import { createGuard } from './guard.ts'
import { lookRoutes } from './look-routes.ts'
import { type AdminParts, type AdminRoute, findRoute } from './routes.ts'
import { routingRoutes } from './routing-routes.ts'
import { workerRoutes } from './worker-routes.ts'

export type OwnRoute = 'health' | 'ready' | 'metrics' | 'version'

const EVENTS = { method: 'GET', path: '/eldr/events' } as const

export class Admin {
  readonly #parts: AdminParts
  readonly #streams: EventStreams
  readonly #routes: readonly (AdminRoute | typeof EVENTS)[]
  readonly #guard: (request: IncomingMessage) => void

  constructor(parts: AdminParts, events: Events) {
    this.#parts = parts
    this.#streams = new EventStreams(events)
    this.#guard = createGuard(parts.ctx.settings.server.adminToken)
    this.#routes = [...workerRoutes(parts), ...routingRoutes(parts), ...lookRoutes(parts), EVENTS]
  }

  /** Every route changes something or shows names of workers, which may be their addresses: who may use one may use all. */
  async serve(exchange: Exchange, path: string, proceed: () => void): Promise<Outcome> {
    const { request } = exchange
    this.#guard(request)
    const found = findRoute(this.#routes, request.method ?? '', path)
    if ('allow' in found) {
      exchange.headers['allow'] = found.allow
      throw new Refusal('ELDR_METHOD')
    }
    const { route, id } = found
    if (!('run' in route)) return this.#streams.serve(exchange)
    const query = new URLSearchParams((request.url ?? '').split('?').slice(1).join('?'))
    const { status, body } = await route.run({ exchange, id, query, proceed })
    json(exchange, status, body)
    return 'ok'
  }

  async serveOwn(exchange: Exchange, name: OwnRoute, draining: boolean): Promise<Outcome> {
    const { metrics, registry, settings } = this.#parts.ctx
    if (name === 'metrics') {
      if (settings.server.metricsPort !== undefined) throw new Refusal('ELDR_NOT_FOUND')
      exchange.answer(200, { 'content-type': metrics.registry.contentType }, await metrics.registry.metrics())
    } else if (name === 'version') json(exchange, 200, { version: VERSION })
    else if (name === 'health') json(exchange, 200, { status: 'ok' })
    else {
      const nowMs = performance.now()
      const [prefill, decode] = [registry.candidates('prefill', nowMs).length, registry.candidates('decode', nowMs).length]
      const ready = !draining && prefill > 0 && decode > 0
      json(exchange, ready ? 200 : 503, { status: draining ? 'draining' : ready ? 'ready' : 'waiting for workers', prefill, decode })
    }
    return 'ok'
  }

  /** Ends what would not end by itself. */
  close(): void {
    this.#streams.close()
  }
}

function json(exchange: Exchange, status: number, body: object): void {
  exchange.answer(status, { 'content-type': 'application/json', 'cache-control': 'no-store' }, JSON.stringify(body))
}
