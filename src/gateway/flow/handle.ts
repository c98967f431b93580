/** Takes a request from its route to its end. Nothing thrown in here leaves it. */
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { BODY_BUDGET_BYTES, ByteBudget } from '../../wire/byte-budget.ts'
import type { Admission } from '../http/admission.ts'
import { createKeyCheck } from '../http/auth.ts'
import { type Api, readRequest } from '../http/client-request.ts'
import { Exchange, type StopReason } from '../http/exchange.ts'
import { readBody } from '../http/read-body.ts'
import { type RefusalCode, Refusal } from '../http/refusal.ts'
import { refuse } from '../http/refuse.ts'
import { wrongHead } from '../http/request-head.ts'
import { type OwnRoute, type Route, routeOf } from '../http/routes.ts'
import { type Outcome, RequestEvents } from '../observe/request-observer.ts'
import type { FlowContext } from './context.ts'
import { generate } from './generate.ts'
import { passThrough } from './pass-through.ts'
import { clientSink } from './sink.ts'
import { runSplit } from './split/run-split.ts'
import { partsOf } from './split/split.ts'

/** Limits the number of requests in progress. */
export type Gate = Pick<Admission, 'check' | 'mustWait' | 'enter' | 'leave'>

/** Serves the gateway's own routes. */
export interface Pages {
  /** The admin API. `proceed` tells a client that expects 100 Continue to send its body. */
  serve(exchange: Exchange, path: string, proceed: () => void): Promise<Outcome> | Outcome
  /** Health, readiness, metrics, version and the OpenAPI document. */
  serveOwn(exchange: Exchange, name: OwnRoute, draining: boolean): Promise<Outcome> | Outcome
  /** The dashboard. */
  servePage(exchange: Exchange, path: string): Promise<Outcome> | Outcome
}

/** A request and what is reported of it. */
interface Served {
  readonly exchange: Exchange
  readonly events: RequestEvents
  readonly route: Route
  readonly isAuthorized: boolean
}

export class Handler {
  /** Requests in progress. */
  readonly live = new Set<Exchange>()
  /** Those, and requests whose response has not been sent completely. */
  readonly open = new Set<Exchange>()
  /** New requests are refused. */
  draining = false
  /**
   * Responses that begin from now on close their connections, because other processes take over. Others do
   * not: their clients may already have sent the next request.
   */
  leaving = false
  readonly #ctx: FlowContext
  readonly #gate: Gate
  readonly #pages: Pages
  /** For bodies that are being read, which the gate does not count yet. */
  readonly #bodies: ByteBudget
  readonly #isAuthorized: (request: IncomingMessage) => boolean
  readonly #observerFailed = (err: unknown) =>
    this.#ctx.log.error({ err }, 'internal error in an observer of requests')

  constructor(ctx: FlowContext, gate: Gate, pages: Pages) {
    this.#ctx = ctx
    this.#gate = gate
    this.#pages = pages
    const { apiKeys, maxBodyBytes } = ctx.settings.server
    this.#bodies = new ByteBudget(Math.max(BODY_BUDGET_BYTES, 2 * maxBodyBytes))
    this.#isAuthorized = apiKeys.length === 0 ? () => true : createKeyCheck(apiKeys)
  }

  /** `proceed` tells a client that expects 100 Continue to send its body. */
  async handle(
    request: IncomingMessage,
    response: ServerResponse,
    proceed: () => void = () => {},
  ): Promise<void> {
    const exchange = new Exchange(requestIdOf(request), request, response, this.#limitOf(request))
    const route = routeOf(request.method ?? '', request.url ?? '')
    if (this.draining || this.leaving) response.shouldKeepAlive = false
    response.on('error', noop) // a client that leaves while it is being served is not a fault
    if (response.socket === null) followSocket(exchange)
    this.live.add(exchange)
    this.open.add(exchange)
    response.once('close', () => this.open.delete(exchange))
    const isAuthorized = (route.kind === 'generate' || route.kind === 'pass') && this.#isAuthorized(request)
    const events = new RequestEvents(
      this.#ctx.observers,
      { exchange, route, isAuthorized },
      this.#observerFailed,
    )
    let outcome: Outcome = 'failed'
    let code: RefusalCode | undefined
    try {
      outcome = await this.#serve({ exchange, events, route, isAuthorized }, proceed)
    } catch (error) {
      ;({ outcome, code } = this.#refuse(exchange, error))
    } finally {
      this.live.delete(exchange)
      events.ended(outcome, code)
      if (this.draining) closeAfter(exchange)
    }
  }

  /** Resolves when the current requests have their responses, to the last byte. */
  async settled(): Promise<void> {
    await Promise.all([...this.open].map(({ response }) => once(response, 'close')))
  }

  #serve(served: Served, proceed: () => void): Promise<Outcome> | Outcome {
    const { exchange, events, route, isAuthorized } = served
    const wrong = wrongHead(exchange.request)
    if (wrong !== undefined) {
      exchange.response.shouldKeepAlive = false
      throw new Refusal('ELDR_BAD_REQUEST', { words: wrong })
    }
    if (route.kind === 'refused') {
      if (route.allow !== undefined) exchange.headers['allow'] = route.allow
      throw new Refusal(route.code)
    }
    if (route.kind === 'page') return this.#pages.servePage(exchange, route.path)
    if (route.kind === 'admin') return this.#pages.serve(exchange, route.path, proceed)
    if (route.kind === 'own') return this.#pages.serveOwn(exchange, route.name, this.draining)
    if (!isAuthorized) throw new Refusal('ELDR_UNAUTHORIZED')
    if (this.draining) throw new Refusal('ELDR_DRAINING', { retryAfterSeconds: 1 })
    const { path } = route
    return this.#admitted(served, proceed, body =>
      route.kind === 'generate'
        ? this.#generate(served, route.api, path, body)
        : passThrough(this.#ctx, { exchange, events, path, body }),
    )
  }

  /**
   * A request is admitted when its body has arrived, or slow clients would take all places; a body that has
   * no place is not read.
   */
  async #admitted(
    { exchange, events }: Served,
    proceed: () => void,
    serve: (body: Buffer) => Promise<Outcome>,
  ): Promise<Outcome> {
    const { maxBodyBytes } = this.#ctx.settings.server
    this.#gate.check()
    const body = await readBody(exchange.request, maxBodyBytes, proceed, exchange, this.#bodies)
    const queued = this.#gate.mustWait
    const askedMs = performance.now()
    try {
      await this.#gate.enter(exchange)
    } catch (error) {
      events.admitted({ askedMs, queued, error })
      throw error
    }
    events.admitted({ askedMs, queued, error: undefined })
    try {
      return await serve(body)
    } finally {
      this.#gate.leave()
    }
  }

  async #generate({ exchange, events }: Served, api: Api, path: string, body: Buffer): Promise<Outcome> {
    const { settings, engine } = this.#ctx
    const request = readRequest(api, body, engine)
    if ('wrong' in request)
      throw new Refusal('ELDR_BAD_REQUEST', { words: request.wrong, param: request.param })
    const parts = partsOf(request)
    events.read(request, parts)
    if (parts > settings.limits.maxChoices) {
      throw new Refusal('ELDR_TOO_MANY_CHOICES', {
        words: `${parts} choices in one request; at most ${settings.limits.maxChoices} are served.`,
      })
    }
    if (parts === 1 || request.whole) {
      const sink = clientSink(exchange)
      return generate(this.#ctx, { exchange, events, request, requestId: exchange.id, path, sink })
    }
    return runSplit(exchange, request, engine.privateFields.response, (part, requestId, sink) =>
      generate(this.#ctx, { exchange, events, request: part.request, requestId, path, sink }),
    )
  }

  #refuse(exchange: Exchange, error: unknown): { outcome: Outcome; code?: RefusalCode } {
    const { response, stopped } = exchange
    if (stopped === 'client_gone' || stopped === 'client_stalled') return { outcome: stopped }
    const refusal = error instanceof Refusal ? error : exchange.refusal
    if (refusal === undefined)
      this.#ctx.log.error({ err: error, reqId: exchange.id }, 'internal error while serving a request')
    const told = refusal ?? new Refusal('ELDR_INTERNAL')
    if (response.headersSent) response.destroy()
    else refuse(exchange, told)
    const outcome = told.status === 504 ? 'timeout' : told.status >= 500 ? 'failed' : 'refused'
    return { outcome, code: told.code }
  }

  #limitOf({ headers }: IncomingMessage): { ms: number; reason: StopReason } {
    const { requestMs } = this.#ctx.settings.timeouts
    const header = String(headers['x-request-timeout-ms'] ?? '')
    const asked = /^\d{1,9}$/.test(header) ? Number(header) : Infinity
    return asked < requestMs
      ? { ms: asked, reason: 'deadline' }
      : { ms: requestMs, reason: 'request_timeout' }
  }
}

function noop(): void {}

/**
 * A response that waits for earlier ones of its connection has no socket yet, and Node does not tell it when
 * the connection closes: shutdown would wait for it.
 */
function followSocket({ request: { socket }, response }: Exchange): void {
  const gone = () => {
    if (response.socket === null) response.emit('close')
  }
  socket.setMaxListeners(0).once('close', gone)
  response.once('close', () => socket.off('close', gone))
}

/** Shutdown waits for connections, and this one is of no more use to its client. */
function closeAfter({ request: { socket }, response }: Exchange): void {
  if (response.writableFinished) socket.destroySoon()
  else response.once('close', () => socket.destroySoon())
}

/** The client's own id if it is safe in a header and a log line, otherwise a new one. */
function requestIdOf({ headers }: IncomingMessage): string {
  const given = headers['x-request-id']
  return typeof given === 'string' && /^[\w.:-]{1,128}$/.test(given) ? given : randomUUID()
}
