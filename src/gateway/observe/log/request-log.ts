/** One log line per request, one per failed attempt (rate-limited), and one per attempt at debug level. */
import { readTraceparent } from '../../../wire/trace-context.ts'
import type {
  Attempt,
  AttemptEnd,
  ObservedRequest,
  Outcome,
  RequestEvents,
  RequestListener,
  RequestObserver,
} from '../request-observer.ts'
import type { Log, RateLimitedLog } from './log.ts'

interface Output {
  readonly log: Log
  readonly rateLimitedLog: RateLimitedLog
}

export function requestLog(output: Output): RequestObserver {
  return {
    observe: (request, events) =>
      request.route.kind === 'generate' || request.route.kind === 'pass'
        ? new RequestLog(output, request, events)
        : undefined,
  }
}

class RequestLog implements RequestListener {
  readonly #output: Output
  readonly #request: ObservedRequest
  readonly #events: RequestEvents

  constructor(output: Output, request: ObservedRequest, events: RequestEvents) {
    this.#output = output
    this.#request = request
    this.#events = events
  }

  attemptEnded(attempt: Attempt, end: AttemptEnd): void {
    const { leg, worker, number, requestId: reqId, startedMs, endedMs } = attempt
    const { log, rateLimitedLog } = this.#output
    if (leg === 'relay') return
    if (log.isLevelEnabled('debug')) {
      const tokens = attempt.servesClient ? attempt.tokens : undefined
      log.debug(
        { reqId, leg, worker: worker.id, attempt: number, end: end.kind, tokens, ms: endedMs - startedMs },
        'leg',
      )
    }
    if (end.kind !== 'failed') return
    const { id } = this.#request.exchange
    rateLimitedLog.say(`${leg} ${worker.id} ${end.cause}`, endedMs, times =>
      log.warn({ worker: worker.id, why: end.why, times, reqId: id }, `${leg} failed`),
    )
  }

  ended(outcome: Outcome): void {
    const { log } = this.#output
    if (!log.isLevelEnabled('info')) return
    const { exchange, route } = this.#request
    const { id: reqId, response, startedMs } = exchange
    const head = {
      reqId,
      traceId: this.#traceId(),
      route: route.kind === 'generate' ? route.api : route.kind,
      outcome,
      status: response.headersSent ? response.statusCode : undefined,
    }
    log.info(this.#events.facts.line(head, startedMs, performance.now()), 'request')
  }

  /** Also for a request that is not traced here, so that its caller can find it by its own trace id. */
  #traceId(): string | undefined {
    const traceparent =
      this.#events.trace?.traceparent ?? this.#request.exchange.request.headers['traceparent']
    return traceparent === undefined ? undefined : readTraceparent(traceparent)?.traceId
  }
}
