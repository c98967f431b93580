/** Counters and histograms of requests. */
import type { ClientRequest } from '../../http/client-request.ts'
import { CONVERSATION_STEPS } from '../request-observer.ts'
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
  Resumed,
} from '../request-observer.ts'
import { type Metrics, ROUTE_SECONDS } from './metrics.ts'

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300]
/** A request may take half an hour. */
const REQUEST_SECONDS = [...SECONDS, 600, 1_800]
const TOKEN_SECONDS = [
  0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.25,
  0.5, 1, 5,
]

/** Declared here and counted below: a new metric of requests touches this file alone. */
function declared(metrics: Metrics) {
  const { requests, errorResponses, legFailures } = metrics
  const own = {
    retries: metrics.counter('eldr_retries_total', 'Retries of a leg, by cause', ['leg', 'cause']),
    resumed: metrics.counter(
      'eldr_streams_resumed_total',
      'Broken streams that went on with another worker, by the kind of failure (eldr_leg_failures_total)',
      ['cause'],
    ),
    notResumed: metrics.counter(
      'eldr_streams_not_resumed_total',
      'Broken streams that ended with an error although resume.enabled is set, by reason (docs/guides/gateway.md)',
      ['reason'],
    ),
    pauseSeconds: metrics.histogram(
      'eldr_resume_pause_seconds',
      'Time from the break of a resumed stream to its next event',
      [],
      SECONDS,
    ),
    leasesMissed: metrics.counter(
      'eldr_leases_missed_total',
      'Hand-offs not used because their lease had expired or was about to',
      [],
    ),
    handoffsReleased: metrics.counter(
      'eldr_handoffs_released_total',
      'Hand-offs released unread: the client left, or the decode worker refused or was unreachable',
      [],
    ),
    conversationTurns: metrics.counter(
      'eldr_conversation_turns_total',
      'Requests that continue a known conversation, by where they went: kept (the decode worker that has its KV cache), alone (there, without a remote prefill), moved (another one)',
      ['outcome'],
    ),
    tokens: metrics.hotCounter(
      'eldr_tokens_total',
      'Prompt tokens (counted by prefill, otherwise estimated) and output tokens sent to clients (stream events, or usage for non-streamed responses)',
      ['kind'],
    ),
    queueSeconds: metrics.histogram(
      'eldr_queue_seconds',
      'Time in admission until admitted or refused; near 0 unless the request queued',
      [],
      SECONDS,
    ),
    handoffSeconds: metrics.histogram(
      'eldr_handoff_seconds',
      'Time from the prefill response to the decode dispatch',
      [],
      ROUTE_SECONDS,
    ),
    prefillSeconds: metrics.histogram('eldr_prefill_seconds', 'Duration of the prefill leg', [], SECONDS),
    ttftSeconds: metrics.histogram(
      'eldr_time_to_first_token_seconds',
      'Time from the request to the first byte of its stream. Non-streamed responses are not counted',
      ['route'],
      SECONDS,
    ),
    interTokenSeconds: metrics.histogram(
      'eldr_inter_token_seconds',
      'Mean time between the tokens of a stream (TPOT)',
      [],
      TOKEN_SECONDS,
    ),
    requestSeconds: metrics.histogram(
      'eldr_request_seconds',
      'Time from the request to its end',
      ['route'],
      REQUEST_SECONDS,
    ),
  }
  for (const kind of ['prompt', 'output']) own.tokens.inc(kind, '', 0)
  for (const step of CONVERSATION_STEPS) own.conversationTurns.inc({ outcome: step }, 0)
  return { requests, errorResponses, legFailures, ...own }
}

type Declared = ReturnType<typeof declared>

export function requestMetrics(metrics: Metrics): RequestObserver {
  const all = declared(metrics)
  return { observe: request => new RequestMetrics(all, request) }
}

class RequestMetrics implements RequestListener {
  readonly #metrics: Declared
  readonly #request: ObservedRequest
  readonly #route: string

  constructor(metrics: Declared, request: ObservedRequest) {
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
    if (placement?.conversation !== undefined)
      this.#metrics.conversationTurns.inc({ outcome: placement.conversation })
  }

  firstByte({ leg, streamed, firstByteMs, resumes }: Attempt): void {
    // A non-streamed response has no first-token time, and a resumed one had it before.
    if (!streamed || resumes || leg === 'relay') return
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

  resumed({ cause, pauseMs }: Resumed): void {
    this.#metrics.resumed.inc({ cause })
    this.#metrics.pauseSeconds.observe(pauseMs / 1000)
  }

  notResumed(reason: string): void {
    this.#metrics.notResumed.inc({ reason })
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
    if (exchange.told !== undefined) metrics.errorResponses.inc(exchange.told)
    if (route.kind === 'generate' || route.kind === 'pass')
      metrics.requestSeconds.series(this.#route).observe((performance.now() - exchange.startedMs) / 1000)
  }
}
