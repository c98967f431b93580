/** The spans of a request: the request itself, its time in the queue, its decisions and its attempts. */
import type { StopReason } from '../../http/exchange.ts'
import { Refusal } from '../../http/refusal.ts'
import type {
  Admitted,
  Attempt,
  AttemptEnd,
  Decided,
  ObservedRequest,
  Outcome,
  RequestEvents,
  RequestListener,
  RequestObserver,
  Resumed,
} from '../request-observer.ts'
import type { RequestTrace } from './request-trace.ts'
import { KIND, real, type Span } from './span.ts'
import type { Tracer } from './tracer.ts'

/**
 * Passed-through routes with a span name of their own. Span names must be few, but clients may send any path.
 */
const NAMED = new Set(['/v1/models', '/v1/responses', '/tokenize', '/detokenize'])
const MAX_PATH_CHARACTERS = 256
/** Refusals caused by the client, and clients that leave, are not errors of the server. */
const FAILED: ReadonlySet<Outcome> = new Set<Outcome>(['failed', 'broken', 'timeout'])

export function requestSpans(tracer: Tracer): RequestObserver {
  return {
    observe(request, events) {
      const { exchange, route, isAuthorized } = request
      // Clients without a key must not fill the queue of spans.
      if (!isAuthorized || (route.kind !== 'generate' && route.kind !== 'pass')) return undefined
      const { request: message, startedMs } = exchange
      const path = route.kind === 'generate' || NAMED.has(route.path) ? route.path : '/v1/*'
      const method = message.method ?? ''
      const trace = tracer.begin(message.headers, `${method} ${path}`, startedMs)
      if (trace === undefined) return undefined
      trace.root.set({
        'http.request.method': method,
        'http.route': path,
        'url.path': route.path.slice(0, MAX_PATH_CHARACTERS),
        'url.scheme': 'encrypted' in message.socket ? 'https' : 'http',
        'network.protocol.version': message.httpVersion,
        'eldr.request_id': exchange.id,
      })
      return new RequestSpans(tracer, trace, request, events)
    },
  }
}

class RequestSpans implements RequestListener {
  readonly #tracer: Tracer
  readonly #trace: RequestTrace
  readonly #request: ObservedRequest
  readonly #events: RequestEvents
  readonly #attempts = new Map<Attempt, Span>()

  constructor(tracer: Tracer, trace: RequestTrace, request: ObservedRequest, events: RequestEvents) {
    this.#tracer = tracer
    this.#trace = trace
    this.#request = request
    this.#events = events
    events.trace = { traceparent: trace.root.traceparent, tracestate: trace.tracestate }
  }

  admitted({ askedMs, queued, error }: Admitted): void {
    const span = queued ? this.#trace.child('queue', KIND.internal, askedMs) : undefined
    const { stopped } = this.#request.exchange
    if (error !== undefined && stopped === undefined && error instanceof Refusal)
      span?.failed(error.code, error.code)
    else if (error !== undefined && span !== undefined) markStopped(span, stopped)
    span?.end()
  }

  decided({ askedMs, decidedMs, requestId, placement }: Decided): void {
    const span = this.#trace.child('route', KIND.internal, askedMs)
    if (placement === undefined) span?.failed('no_worker', 'no decode worker accepts requests')
    else
      span?.set({
        'eldr.policy': placement.policy,
        'eldr.reason': placement.decision.reason,
        'eldr.worker': placement.worker.id,
        'eldr.similarity': real(placement.similarity),
        'eldr.coverage': real(placement.covered),
        'eldr.band_size': placement.decision.band,
        'eldr.part': this.#partOf(requestId),
      })
    span?.end(decidedMs)
  }

  attemptStarted(attempt: Attempt): void {
    const { leg, worker, number, requestId, method } = attempt
    const span = this.#trace.child(leg, KIND.client)?.set({
      'eldr.worker': worker.id,
      'eldr.dp_rank': worker.dpRank,
      'eldr.attempt': number,
      'eldr.part': this.#partOf(requestId),
      'http.request.method': method,
    })
    if (span === undefined) return
    this.#attempts.set(attempt, span)
    attempt.trace = { traceparent: span.traceparent, tracestate: this.#trace.tracestate }
  }

  firstByte(attempt: Attempt): void {
    if (attempt.streamed && attempt.leg !== 'relay')
      this.#attempts.get(attempt)?.event('first_token', attempt.firstByteMs)
  }

  attemptEnded(attempt: Attempt, end: AttemptEnd): void {
    const span = this.#attempts.get(attempt)
    // A span that a fault leaves open ends with the request.
    if (span === undefined || end.kind === 'fault') return
    if (attempt.servesClient && attempt.leg !== 'relay') span.set({ 'eldr.output_tokens': attempt.tokens })
    if (end.kind === 'stopped') markStopped(span, this.#request.exchange.stopped)
    else if (end.kind === 'handed_off')
      span.set({ 'eldr.prompt_tokens': end.promptTokens, 'http.response.status_code': 200 })
    else {
      span.set({ 'http.response.status_code': end.status })
      if (end.kind === 'failed') span.failed(end.cause, end.why)
      else if (end.kind === 'served' && end.status >= 400)
        span.failed(String(end.status), `status ${end.status}`)
    }
    span.end(attempt.endedMs)
  }

  resumed({ pauseMs }: Resumed): void {
    const nowMs = performance.now()
    this.#trace.root.event('stream_broken', nowMs - pauseMs)
    this.#trace.root.event('stream_resumed', nowMs)
  }

  notResumed(): void {
    this.#trace.root.event('stream_broken', performance.now())
  }

  ended(outcome: Outcome): void {
    const { response } = this.#request.exchange
    const { facts } = this.#events
    const { root } = this.#trace
    root.set({
      'http.response.status_code': response.headersSent ? response.statusCode : undefined,
      'eldr.outcome': outcome,
      'eldr.error_code': facts.code,
      'eldr.stream': facts.stream,
      'eldr.parts': facts.parts === 1 ? undefined : facts.parts,
      'eldr.prefill.worker': facts.prefill,
      'eldr.worker': facts.decode,
      'eldr.policy': facts.policy,
      'eldr.reason': facts.reason,
      'eldr.similarity': real(facts.similarity),
      'eldr.coverage': real(facts.covered),
      'eldr.band_size': facts.band,
      'eldr.prompt_tokens': facts.promptTokens,
      'eldr.output_tokens': facts.firstMs === undefined ? undefined : facts.outputTokens,
      'eldr.retries': facts.retries,
      'eldr.resumes': facts.resumes === 0 ? undefined : facts.resumes,
      'eldr.not_resumed': facts.notResumedFor,
    })
    if (FAILED.has(outcome)) root.failed(facts.code ?? outcome, facts.code ?? outcome)
    this.#tracer.ended(this.#trace)
  }

  /** The part of a split request that a request id belongs to. */
  #partOf(requestId: string): string | undefined {
    return requestId === this.#request.exchange.id ? undefined : requestId
  }
}

/** A client that leaves is not a failure of the gateway. */
function markStopped(span: Span, reason: StopReason | undefined): void {
  span.set({ 'eldr.stopped': reason })
  if (reason !== 'client_gone' && reason !== 'client_stalled' && reason !== undefined)
    span.failed(reason, `stopped: ${reason}`)
}
