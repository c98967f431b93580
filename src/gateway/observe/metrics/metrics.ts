/** What the gateway counts, in Prometheus' form. Label values come from fixed lists or from the configuration, so there are few of them. */
import { collectDefaultMetrics, Counter, Gauge, Registry } from 'prom-client'
import { REJECTS } from '../../../wire/counts.ts'
import { type RefusalCode, REFUSALS } from '../../http/refusal.ts'
import { OUTCOMES } from '../request-observer.ts'
import { HotCounter, HotHistogram } from './hot-metrics.ts'

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300]
/** A request may take half an hour. */
const REQUEST_SECONDS = [...SECONDS, 600, 1_800]
const TOKEN_SECONDS = [
  0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.25,
  0.5, 1, 5,
]
const ROUTE_SECONDS = [
  0.0000025, 0.000005, 0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1,
  1,
]
/** Breakers change to these. */
const BREAKER_STATES = ['closed', 'half_open', 'open'] as const

type Collect = (set: (labels: Record<string, string>, value: number) => void) => void

/** What docs/reference/metrics.md says of a metric. */
export interface MetricDefinition {
  readonly name: string
  readonly type: 'counter' | 'histogram' | 'gauge'
  readonly help: string
  readonly labels: readonly string[]
}

export class Metrics {
  readonly registry = new Registry()
  readonly definitions: MetricDefinition[] = []
  /** All of it in Prometheus' text format; of a gateway of several processes that is theirs together. */
  text: () => Promise<string> = () => this.registry.metrics()

  readonly requests = this.#hot(
    'eldr_requests_total',
    'Requests by route and outcome: ok, refused (the client’s fault, or too many), worker_refused (4xx of a worker), failed, broken (in mid-stream), client_gone, client_stalled, timeout',
    ['route', 'outcome'],
  )
  readonly errorAnswers = this.#hot(
    'eldr_error_answers_total',
    'Errors that the gateway itself told clients, in an answer or in a stream, by code (docs/reference/errors.md)',
    ['code'],
  )
  readonly workerRequests = this.#hot(
    'eldr_worker_requests_total',
    'Requests that were sent to a worker, each try of each leg',
    ['worker', 'leg'],
  )
  readonly decisions = this.#hot('eldr_decisions_total', 'Decode decisions by policy and reason', [
    'policy',
    'reason',
  ])
  readonly rejects = this.#counter(
    'eldr_signature_rejects_total',
    'Hand-offs whose counts were not used, by reason',
    ['reason'],
  )
  readonly retries = this.#counter('eldr_retries_total', 'Second and later tries of a leg', ['leg', 'cause'])
  readonly legFailures = this.#counter(
    'eldr_leg_failures_total',
    'Failures of workers, by kind: connect, reset, timeout, status, handoff, error_event, early_end, garbage, too_large',
    ['worker', 'leg', 'kind'],
  )
  readonly leasesMissed = this.#counter(
    'eldr_leases_missed_total',
    'Hand-offs that were too old to be used',
    [],
  )
  readonly handoffsReleased = this.#counter(
    'eldr_handoffs_released_total',
    'Hand-offs given back because their client had left',
    [],
  )
  readonly tokens = this.#hot(
    'eldr_tokens_total',
    'Tokens of prompts (as prefill counts them, else estimated), and output that clients got (events of a stream, usage otherwise)',
    ['kind'],
  )
  readonly ticketLeaks = this.#counter(
    'eldr_ticket_leaks_total',
    'Tickets that nobody released: must stay 0',
    [],
  )
  readonly restarts = this.#counter('eldr_worker_restarts_total', 'Restarts of workers that were noticed', [
    'worker',
  ])
  readonly breakerChanges = this.#counter('eldr_breaker_transitions_total', 'Changes of a worker’s breaker', [
    'worker',
    'to',
  ])
  readonly healthChecks = this.#counter(
    'eldr_health_checks_total',
    'Health checks of workers: ok or failed; a check of a server counts for each of its data-parallel ranks',
    ['worker', 'result'],
  )
  readonly routingChanges = this.#counter(
    'eldr_routing_changes_total',
    'Changes of what decisions go by, and re-fits that were refused',
    ['cause'],
  )
  readonly discoveryChanges = this.#counter(
    'eldr_discovery_changes_total',
    'Workers that a source of discovery added, drained, undrained or removed',
    ['source', 'change'],
  )

  readonly traceSpans = this.#counter('eldr_trace_spans_total', 'Spans that a collector took', [])
  readonly traceSpansDropped = this.#counter(
    'eldr_trace_spans_dropped_total',
    'Spans that did not get to a collector: queue_full, too_many of one request, failed, rejected by it, shutdown',
    ['reason'],
  )

  readonly queueSeconds = this.#histogram(
    'eldr_queue_seconds',
    'Time that requests waited to be let in; most do not wait',
    [],
    SECONDS,
  )
  readonly routeSeconds = this.#histogram(
    'eldr_route_seconds',
    'Time to read a hand-off’s counts and decide',
    [],
    ROUTE_SECONDS,
  )
  readonly handoffSeconds = this.#histogram(
    'eldr_handoff_seconds',
    'From prefill’s answer to the dispatch of decode',
    [],
    ROUTE_SECONDS,
  )
  readonly prefillSeconds = this.#histogram('eldr_prefill_seconds', 'Time of the prefill leg', [], SECONDS)
  readonly ttftSeconds = this.#histogram(
    'eldr_time_to_first_token_seconds',
    'From the request to the first byte of its stream; answers that are not streamed have none',
    ['route'],
    SECONDS,
  )
  readonly interTokenSeconds = this.#histogram(
    'eldr_inter_token_seconds',
    'Mean time between tokens of a stream (TPOT)',
    [],
    TOKEN_SECONDS,
  )
  readonly requestSeconds = this.#histogram(
    'eldr_request_seconds',
    'From the request to its end',
    ['route'],
    REQUEST_SECONDS,
  )
  readonly similarity = this.#histogram(
    'eldr_similarity',
    'Cosine of a request to the centroid of the worker it went to',
    [],
    [0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 1],
  )
  readonly bandSize = this.#histogram(
    'eldr_band_size',
    'Workers in the locality band',
    [],
    [1, 2, 3, 4, 6, 8, 12, 16, 32, 64],
  )
  readonly covered = this.#histogram(
    'eldr_signature_coverage',
    'Share of a prompt whose experts are known',
    [],
    [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1],
  )

  constructor() {
    collectDefaultMetrics({ register: this.registry })
    // A series that first shows up with a 1 has not risen as far as Prometheus can see: what alerts look at begins at 0.
    for (const outcome of OUTCOMES)
      for (const route of ['completions', 'chat']) this.requests.inc(route, outcome, 0)
    for (const code of Object.keys(REFUSALS) as RefusalCode[]) this.errorAnswers.inc(code, '', 0)
    for (const reason of [...REJECTS, 'recent_missing']) this.rejects.inc({ reason }, 0)
    for (const kind of ['prompt', 'output']) this.tokens.inc(kind, '', 0)
    for (const cause of ['policy', 'artifact', 'refit', 'refit_refused', 'workers', 'model'])
      this.routingChanges.inc({ cause }, 0)
  }

  /** Read when somebody asks. `together`: what it is of several processes. */
  gauge(
    name: string,
    help: string,
    labels: readonly string[],
    collect: Collect,
    together: 'sum' | 'max' = 'sum',
  ): void {
    const gauge: Gauge = new Gauge({
      ...this.#define('gauge', name, help, labels),
      aggregator: together,
      collect: () => {
        gauge.reset()
        // Without labels a reset leaves a zero behind, which would say something that nobody has said.
        if (labels.length === 0) gauge.remove({})
        collect((values, value) => gauge.set(values, value))
      },
    })
  }

  /** A counter that somebody else keeps, read when somebody asks. */
  readCounter(name: string, help: string, labels: readonly string[], collect: Collect): void {
    const counter: Counter = new Counter({
      ...this.#define('counter', name, help, labels),
      collect: () => {
        counter.reset()
        collect((values, value) => counter.inc(values, value))
      },
    })
  }

  /** A worker that has just come has had no trouble yet, which must be seen before it has. */
  meetWorker(worker: string, leg: string): void {
    this.restarts.inc({ worker }, 0)
    for (const to of BREAKER_STATES) this.breakerChanges.inc({ worker, to }, 0)
    for (const result of ['ok', 'failed']) this.healthChecks.inc({ worker, result }, 0)
    this.workerRequests.inc(worker, leg, 0)
  }

  /** Series of a worker that is gone: with workers that come and go under new names they would pile up. */
  async forgetWorker(worker: string): Promise<void> {
    await new Promise(setImmediate) // how its last request ended is counted just after the worker is gone
    this.workerRequests.forget(worker)
    for (const counter of [this.legFailures, this.restarts, this.breakerChanges, this.healthChecks]) {
      const { values } = await counter.get()
      for (const { labels } of values) if (labels['worker'] === worker) counter.remove(labels)
    }
  }

  #counter(name: string, help: string, labels: readonly string[]): Counter {
    return new Counter(this.#define('counter', name, help, labels))
  }

  #hot(name: string, help: string, labels: readonly [string, string?]): HotCounter {
    return new HotCounter(
      this.registry,
      this.#define('counter', name, help, labels as readonly string[]),
      labels,
    )
  }

  #histogram(
    name: string,
    help: string,
    labels: readonly [string?],
    buckets: readonly number[],
  ): HotHistogram {
    return new HotHistogram(
      this.registry,
      this.#define('histogram', name, help, labels as readonly string[]),
      buckets,
      labels[0],
    )
  }

  #define(type: MetricDefinition['type'], name: string, help: string, labels: readonly string[]) {
    this.definitions.push({ name, type, help, labels })
    return { name, help, labelNames: [...labels], registers: [this.registry] }
  }
}
