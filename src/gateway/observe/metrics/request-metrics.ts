/** Counters and histograms of requests. */
import type { ClientRequest } from '../../http/client-request.ts'
import type {
  Admitted,
  Attempt,
  AttemptEnd,
  Decided,
  Leg,
  ObservedRequest,
  Outcome,
  RequestListener,
  RequestObserver,
} from '../request-observer.ts'
import type { Metrics } from './metrics.ts'

export function requestMetrics(metrics: Metrics): RequestObserver {
  return { observe: request => new RequestMetrics(metrics, request) }
}

class RequestMetrics implements RequestListener {
  readonly #metrics: Metrics
  readonly #request: ObservedRequest
  readonly #route: string

  constructor(metrics: Metrics, request: ObservedRequest) {
    const { route } = request
    this.#metrics = metrics
    this.#request = request
    this.#route = route.kind === 'generate' ? route.api : route.kind
  }

  admitted({ askedMs }: Admitted): void {
    this.#metrics.queueSeconds.observe((performance.now() - askedMs) / 1000)
  }

  promptCounted(tokens: ClientRequest['promptTokens']): void {
    this.#metrics.tokens.inc('prompt', '', tokens)
  }

  decided({ prefilledMs, decidedMs, placement }: Decided): void {
    if (prefilledMs !== undefined && placement !== undefined)
      this.#metrics.handoffSeconds.observe((decidedMs - prefilledMs) / 1000)
  }

  firstByte({ leg, streamed, firstByteMs }: Attempt): void {
    // A non-streamed response has no first-token time.
    if (!streamed || leg === 'relay') return
    const { startedMs } = this.#request.exchange
    this.#metrics.ttftSeconds.series(this.#route).observe((firstByteMs - startedMs) / 1000)
  }

  attemptEnded(attempt: Attempt, end: AttemptEnd): void {
    const { leg, worker, startedMs, endedMs, tokens, tokenMs } = attempt
    const metrics = this.#metrics
    if (leg === 'relay') return
    if (end.kind === 'handed_off') metrics.prefillSeconds.observe((endedMs - startedMs) / 1000)
    if (end.kind === 'failed') metrics.legFailures.inc({ worker: worker.id, leg, kind: end.cause })
    if (tokenMs !== undefined) metrics.interTokenSeconds.observe(tokenMs / 1000)
    if (tokens > 0) metrics.tokens.inc('output', '', tokens)
  }

  retried(leg: Leg, cause: string): void {
    this.#metrics.retries.inc({ leg, cause })
  }

  handoffUnused(why: 'expired' | 'released'): void {
    const { leasesMissed, handoffsReleased } = this.#metrics
    if (why === 'expired') leasesMissed.inc()
    else handoffsReleased.inc()
  }

  ended(outcome: Outcome): void {
    const { exchange, route } = this.#request
    const metrics = this.#metrics
    metrics.requests.inc(this.#route, outcome)
    if (exchange.told !== undefined) metrics.errorAnswers.inc(exchange.told)
    if (route.kind === 'generate' || route.kind === 'pass')
      metrics.requestSeconds.series(this.#route).observe((performance.now() - exchange.startedMs) / 1000)
  }
}
