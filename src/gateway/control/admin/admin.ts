/** The gateway's own routes: health, metrics, the dashboard page and the admin API under /eldr. */
import type { IncomingMessage } from 'node:http'
import { VERSION } from '../../../version.ts'
import { Refusal } from '../../http/refusal.ts'
import type { Exchange } from '../../http/exchange.ts'
import type { Outcome } from '../../observe/request-observer.ts'
import { openApiDocument, shapeOf } from '../openapi/document.ts'
import type { OwnRoute } from '../../http/routes.ts'
import { EventStreams } from './event-stream.ts'
import { type Events, MAX_FOLLOWERS } from '../../observe/events.ts'
import type { LiveFeed } from '../dashboard/live-feed.ts'
import { PageFiles } from '../dashboard/page-files.ts'
import { dashboardRoutes, isOpenPath, PULSE_PATH } from '../dashboard/routes.ts'
import type { SignaturePlane } from '../dashboard/signature-plane.ts'
import { WorkerExpertsReader } from '../dashboard/worker-experts.ts'
import { createGuard } from '../../http/admin-guard.ts'
import { experimentRoutes } from './experiment-routes.ts'
import { adaptRoutes } from './adapt-routes.ts'
import { ChangeGate } from './change-gate.ts'
import { logRoutes } from './log-routes.ts'
import { lookRoutes } from './look-routes.ts'
import type { AdminParts } from './admin-context.ts'
import { type AdminRoute, findRoute } from './routes.ts'
import { REPLACE_PATH, replaceRoutes } from './replace-routes.ts'
import { routingRoutes } from './routing-routes.ts'
import { workerRoutes } from './worker-routes.ts'

const EVENTS = { method: 'GET', path: '/eldr/events', stream: 'events' } as const
const PULSE = { method: 'GET', path: PULSE_PATH, stream: 'pulse' } as const

/** Data of the dashboard. */
export interface DashboardData {
  readonly feed: LiveFeed
  readonly plane: SignaturePlane
}

export class Admin {
  /** Changes wait for it while the gateway is replaced. */
  readonly changes = new ChangeGate()
  readonly #parts: AdminParts
  readonly #streams: { readonly events: EventStreams; readonly pulse: EventStreams }
  readonly #page = new PageFiles()
  readonly #routes: readonly (AdminRoute | typeof EVENTS | typeof PULSE)[]
  readonly #guard: (request: IncomingMessage) => void
  #document: object | undefined

  constructor(parts: AdminParts, events: Events, { feed, plane }: DashboardData) {
    const { server, observe } = parts.ctx.settings
    this.#parts = parts
    this.#streams = { events: new EventStreams(events), pulse: new EventStreams(feed, () => feed.hello()) }
    this.#guard = createGuard(server.adminToken)
    const experts = new WorkerExpertsReader(parts.ctx, parts.withRank)
    const { dashboard } = observe
    const dashboardData = dashboardRoutes({
      dashboard,
      tokenSet: server.adminToken !== undefined,
      plane,
      experts,
      mayChange: request => this.#may(request),
    })
    this.#routes = [
      ...workerRoutes(parts),
      ...routingRoutes(parts),
      ...experimentRoutes(parts),
      ...adaptRoutes(parts, request => this.#may(request)),
      ...lookRoutes(parts),
      ...logRoutes(parts),
      ...replaceRoutes(parts),
      EVENTS,
      ...(dashboard === 'off' ? [] : [...dashboardData, PULSE]),
    ]
  }

  /** Methods and paths, for checking the OpenAPI document. */
  get routes(): readonly Pick<AdminRoute, 'method' | 'path'>[] {
    return this.#routes
  }

  /**
   * All routes need the same access, since each one changes something or shows names of workers, which may be
   * addresses. Exception: the routes of an open dashboard.
   */
  async serve(exchange: Exchange, path: string, proceed: () => void): Promise<Outcome> {
    const { request } = exchange
    if (!isOpenPath(path, this.#parts.ctx.settings.observe.dashboard)) this.#guard(request)
    const found = findRoute(this.#routes, request.method ?? '', path)
    if ('allow' in found) {
      exchange.headers['allow'] = found.allow
      throw new Refusal('ELDR_METHOD')
    }
    const { route, id } = found
    if (route.method !== 'GET') this.#guard(request) // open routes are open for reading only
    // Unauthenticated readers may use only half of the slots, so that they cannot lock out operators.
    if (!('run' in route))
      return this.#streams[route.stream].serve(
        exchange,
        this.#may(request) ? MAX_FOLLOWERS : MAX_FOLLOWERS / 2,
      )
    const query = new URLSearchParams((request.url ?? '').split('?').slice(1).join('?'))
    const call = () => route.run({ exchange, id, query, proceed })
    const isChange = route.method !== 'GET' && path !== REPLACE_PATH
    const { status, body } = await (isChange ? this.changes.run(call) : call())
    json(exchange, status, body)
    return 'ok'
  }

  async serveOwn(exchange: Exchange, name: OwnRoute, draining: boolean): Promise<Outcome> {
    const { metrics, registry, settings } = this.#parts.ctx
    if (name === 'metrics') {
      if (settings.server.metricsPort !== undefined) throw new Refusal('ELDR_NOT_FOUND')
      exchange.answer(200, { 'content-type': metrics.registry.contentType }, await metrics.text())
    } else if (name === 'version') json(exchange, 200, { version: VERSION })
    else if (name === 'openapi') json(exchange, 200, (this.#document ??= openApiDocument(shapeOf(settings))))
    else if (name === 'health') json(exchange, 200, { status: 'ok' })
    else {
      const nowMs = performance.now()
      const [prefill, decode] = [
        registry.candidates('prefill', nowMs).length,
        registry.candidates('decode', nowMs).length,
      ]
      const ready = !draining && prefill > 0 && decode > 0
      const status = draining ? 'draining' : ready ? 'ready' : 'waiting for workers'
      const { discovery, replicas } = this.#parts
      const body = {
        status,
        prefill,
        decode,
        discovery: discovery?.summary(),
        replicas: replicas?.status(),
      }
      json(exchange, ready ? 200 : 503, body)
    }
    return 'ok'
  }

  /** Serves the dashboard's files, which contain no data and need no authentication. */
  servePage(exchange: Exchange, path: string): Promise<Outcome> {
    if (this.#parts.ctx.settings.observe.dashboard === 'off') throw new Refusal('ELDR_NOT_FOUND')
    return this.#page.serve(exchange, path)
  }

  /** Ends all event streams. */
  close(): void {
    this.#streams.events.close()
    this.#streams.pulse.close()
  }

  #may(request: IncomingMessage): boolean {
    try {
      this.#guard(request)
      return true
    } catch {
      return false
    }
  }
}

function json(exchange: Exchange, status: number, body: object): void {
  exchange.answer(
    status,
    { 'content-type': 'application/json', 'cache-control': 'no-store' },
    JSON.stringify(body),
  )
}
