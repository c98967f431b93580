/** From a route to an answer: who may ask, what is asked, and how it ended. Nothing thrown in here leaves it. */
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { readTraceparent } from '../../wire/trace-context.ts'
import { BODY_BUDGET_BYTES, ByteBudget } from '../../wire/byte-budget.ts'
import type { Admin } from '../control/admin/admin.ts'
import type { Admission } from '../http/admission.ts'
import { Refusal } from '../http/refusal.ts'
import { createKeyCheck } from '../http/auth.ts'
import type { RequestContext } from './context.ts'
import { Exchange, type StopReason } from '../http/exchange.ts'
import { generate } from './generate.ts'
import { wrongHead } from '../http/request-head.ts'
import type { Outcome } from '../observe/metrics/metrics.ts'
import { passThrough } from './pass-through.ts'
import { readBody } from '../http/read-body.ts'
import { refuse } from '../http/refuse.ts'
import { type Api, readRequest } from '../http/client-request.ts'
import { type Route, routeOf } from '../http/routes.ts'
import { clientSink } from './sink.ts'
import { partsOf } from './split/split.ts'
import { runSplit } from './split/run-split.ts'
import { legStopped } from '../observe/tracing/leg-spans.ts'
import { beginTrace, endTrace } from '../observe/tracing/server-span.ts'
import { KIND } from '../observe/tracing/span.ts'

/** How requests are let in. */
export type Gate = Pick<Admission, 'check' | 'mustWait' | 'enter' | 'leave'>
/** Who answers at the gateway's own routes. */
export type Pages = Pick<Admin, 'serve' | 'serveOwn' | 'servePage'>

export class Handler {
  /** Requests that are being served. */
  readonly live = new Set<Exchange>()
  /** Those, and those whose answer has not gone out wholly. */
  readonly open = new Set<Exchange>()
  /** Nothing new is served. */
  draining = false
  /** Connections end with the answers to what has come on them, since others serve in its place. */
  leaving = false
  readonly #ctx: RequestContext
  readonly #admission: Gate
  readonly #admin: Pages
  /** Of bodies that are being read, which admission does not count yet. */
  readonly #bodies: ByteBudget
  readonly #mayAsk: (request: IncomingMessage) => boolean

  constructor(ctx: RequestContext, admission: Gate, admin: Pages) {
    this.#ctx = ctx
    this.#admission = admission
    this.#admin = admin
    const { apiKeys, maxBodyBytes } = ctx.settings.server
    this.#bodies = new ByteBudget(Math.max(BODY_BUDGET_BYTES, 2 * maxBodyBytes))
    this.#mayAsk = apiKeys.length === 0 ? () => true : createKeyCheck(apiKeys)
  }

  /** `proceed` tells a client that waits for leave to send its body. */
  async handle(
    request: IncomingMessage,
    response: ServerResponse,
    proceed: () => void = () => {},
  ): Promise<void> {
    const exchange = new Exchange(requestIdOf(request), request, response, this.#limitOf(request))
    const route = routeOf(request.method ?? '', request.url ?? '')
    if (this.draining || this.leaving) response.shouldKeepAlive = false
    response.on('error', noop) // a client that leaves amid an answer is no fault of ours
    if (response.socket === null) followSocket(exchange)
    this.live.add(exchange)
    this.open.add(exchange)
    if (route.kind === 'generate') this.#ctx.insight.begun(exchange, route.api)
    // Strangers take no room in the queue of spans.
    if (this.#ctx.tracer !== undefined && this.#mayAsk(request)) beginTrace(this.#ctx.tracer, exchange, route)
    response.once('close', () => this.open.delete(exchange))
    let outcome: Outcome = 'failed'
    try {
      outcome = await this.#serve(exchange, route, proceed)
    } catch (error) {
      outcome = this.#refuse(exchange, error)
    } finally {
      this.live.delete(exchange)
      this.#ended(exchange, route, outcome)
    }
  }

  /** Resolves when the requests that are here now have their answers, to the last byte. */
  async settled(): Promise<void> {
    await Promise.all([...this.open].map(({ response }) => once(response, 'close')))
  }

  #serve(exchange: Exchange, route: Route, proceed: () => void): Promise<Outcome> | Outcome {
    const wrong = wrongHead(exchange.request)
    if (wrong !== undefined) {
      exchange.response.shouldKeepAlive = false
      throw new Refusal('ELDR_BAD_REQUEST', { words: wrong })
    }
    if (route.kind === 'refused') {
      if (route.allow !== undefined) exchange.headers['allow'] = route.allow
      throw new Refusal(route.code)
    }
    if (route.kind === 'page') return this.#admin.servePage(exchange, route.path)
    if (route.kind === 'admin') return this.#admin.serve(exchange, route.path, proceed)
    if (route.kind === 'own') return this.#admin.serveOwn(exchange, route.name, this.draining)
    if (!this.#mayAsk(exchange.request)) throw new Refusal('ELDR_UNAUTHORIZED')
    if (this.draining) throw new Refusal('ELDR_DRAINING', { retryAfterSeconds: 1 })
    return this.#admitted(exchange, proceed, body =>
      route.kind === 'generate'
        ? this.#generate(exchange, route, body)
        : passThrough(this.#ctx, exchange, route.path, body),
    )
  }

  /** A place is taken when the body is there, or clients that send it slowly would take them all; where there is none it is not read. */
  async #admitted(
    exchange: Exchange,
    proceed: () => void,
    serve: (body: Buffer) => Promise<Outcome>,
  ): Promise<Outcome> {
    this.#admission.check()
    const body = await readBody(
      exchange.request,
      this.#ctx.settings.server.maxBodyBytes,
      proceed,
      exchange,
      this.#bodies,
    )
    const waitsMs = performance.now()
    const entered = this.#admission.mustWait ? this.#wait(exchange) : this.#admission.enter(exchange)
    await entered.finally(() => this.#ctx.metrics.queueSeconds.observe((performance.now() - waitsMs) / 1000))
    try {
      return await serve(body)
    } finally {
      this.#admission.leave()
    }
  }

  async #wait(exchange: Exchange): Promise<void> {
    const fromMs = performance.now()
    const span = exchange.trace?.child('queue', KIND.internal, fromMs)
    try {
      await this.#admission.enter(exchange)
    } catch (error) {
      if (exchange.stopped === undefined && error instanceof Refusal) span?.failed(error.code, error.code)
      else if (span !== undefined) legStopped(span, exchange.stopped)
      throw error
    } finally {
      exchange.facts.queueMs = performance.now() - fromMs
      span?.end()
    }
  }

  async #generate(
    exchange: Exchange,
    { api, path }: { readonly api: Api; readonly path: string },
    body: Buffer,
  ): Promise<Outcome> {
    const { settings } = this.#ctx
    const request = readRequest(api, body)
    if ('wrong' in request) {
      throw new Refusal('ELDR_BAD_REQUEST', {
        words: request.wrong,
        ...(request.param !== undefined && { param: request.param }),
      })
    }
    exchange.story?.asks(request)
    const parts = partsOf(request)
    const { facts } = exchange
    facts.promptTokens = request.promptTokens
    facts.stream = request.stream
    if (!request.whole) facts.parts = parts
    if (parts > settings.limits.maxChoices) {
      throw new Refusal('ELDR_TOO_MANY_CHOICES', {
        words: `${parts} choices in one request; at most ${settings.limits.maxChoices} are served.`,
      })
    }
    if (parts === 1 || request.whole) {
      return generate(this.#ctx, {
        exchange,
        request,
        requestId: exchange.id,
        path,
        sink: clientSink(exchange),
      })
    }
    return runSplit(exchange, request, (part, requestId, sink) =>
      generate(this.#ctx, { exchange, request: part.request, requestId, path, sink }),
    )
  }

  #refuse(exchange: Exchange, error: unknown): Outcome {
    const { response, stopped } = exchange
    if (stopped === 'client_gone' || stopped === 'client_stalled') return stopped
    const refusal = error instanceof Refusal ? error : exchange.refusal
    if (refusal === undefined)
      this.#ctx.log.error({ err: error, reqId: exchange.id }, 'a request met a fault of the gateway')
    const told = refusal ?? new Refusal('ELDR_INTERNAL')
    exchange.facts.code = told.code
    if (response.headersSent) response.destroy()
    else refuse(exchange, told)
    return told.status >= 500 ? (told.status === 504 ? 'timeout' : 'failed') : 'refused'
  }

  #limitOf({ headers }: IncomingMessage): { ms: number; reason: StopReason } {
    const { requestMs } = this.#ctx.settings.timeouts
    const asked = /^\d{1,9}$/.test(String(headers['x-request-timeout-ms'] ?? ''))
      ? Number(headers['x-request-timeout-ms'])
      : Infinity
    return asked < requestMs
      ? { ms: asked, reason: 'deadline' }
      : { ms: requestMs, reason: 'request_timeout' }
  }

  #ended(exchange: Exchange, route: Route, outcome: Outcome): void {
    const { metrics, log } = this.#ctx
    const name = route.kind === 'generate' ? route.api : route.kind
    const { startedMs } = exchange
    const endedMs = performance.now()
    metrics.requests.inc(name, outcome)
    if (exchange.told !== undefined) metrics.errorAnswers.inc(exchange.told)
    this.#ctx.insight.ended(exchange, outcome)
    if (this.#ctx.tracer !== undefined) endTrace(this.#ctx.tracer, exchange, outcome)
    if (this.draining || this.leaving) closeAfter(exchange)
    if (route.kind !== 'generate' && route.kind !== 'pass') return
    metrics.requestSeconds.of(name).observe((endedMs - startedMs) / 1000)
    if (log.isLevelEnabled('info')) {
      const { id: reqId, response, facts } = exchange
      const status = response.headersSent ? response.statusCode : undefined
      log.info(
        facts.line({ reqId, traceId: traceIdOf(exchange), route: name, outcome, status }, startedMs, endedMs),
        'request',
      )
    }
  }
}

function noop(): void {}

/** Also of a request that is not traced here: whoever sent it may look for it by that. */
function traceIdOf({ trace, request: { headers } }: Exchange): string | undefined {
  if (trace !== undefined) return trace.root.traceId
  return headers['traceparent'] === undefined ? undefined : readTraceparent(headers['traceparent'])?.traceId
}

/** An answer that waits for those to earlier requests of its connection has no socket yet, and is not told when that one closes. */
function followSocket(exchange: Exchange): void {
  const { socket } = exchange.request
  const gone = () => exchange.stop('client_gone')
  socket.setMaxListeners(0).once('close', gone)
  exchange.response.once('close', () => socket.off('close', gone))
}

/** A connection that the gateway's end waits for is of no more use to its client either. */
function closeAfter({ request: { socket }, response }: Exchange): void {
  if (response.writableFinished) socket.destroySoon()
  else response.once('close', () => socket.destroySoon())
}

/** The client's own id, where it is one that can stand in a header and a log; else a new one. */
function requestIdOf({ headers }: IncomingMessage): string {
  const given = headers['x-request-id']
  return typeof given === 'string' && /^[\w.:-]{1,128}$/.test(given) ? given : randomUUID()
}
