/** Prometheus metrics. Label values come from fixed lists or from the configuration, so they are few. */
import { collectDefaultMetrics, Counter, Gauge, Registry } from 'prom-client'
import { REJECTS } from '../../../wire/counts.ts'
import { type RefusalCode, REFUSALS } from '../../http/refusal.ts'
import { OUTCOMES } from '../request-observer.ts'
import { HotCounter, HotHistogram } from './hot-metrics.ts'

/** Buckets for times of the gateway itself. */
export const ROUTE_SECONDS = [
  0.0000025, 0.000005, 0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1,
  1,
]
const BREAKER_STATES = ['closed', 'half_open', 'open'] as const

type Collect = (set: (labels: Record<string, string>, value: number) => void) => void

/** A row of docs/reference/metrics.md. */
export interface MetricDefinition {
  readonly name: string
  readonly type: 'counter' | 'histogram' | 'gauge'
  readonly help: string
  readonly labels: readonly string[]
}

export class Metrics {
  readonly registry = new Registry()
  readonly definitions: MetricDefinition[] = []
  /** All metrics in the Prometheus text format; with several processes, the metrics of all of them. */
  text: () => Promise<string> = () => this.registry.metrics()

  readonly requests = this.hotCounter(
    'eldr_requests_total',
    'Requests by route and outcome: ok, refused (client error or overload), worker_refused (a worker returned 4xx), failed, broken (mid-stream), client_gone, client_stalled, timeout',
    ['route', 'outcome'],
  )
  readonly errorResponses = this.hotCounter(
    'eldr_error_answers_total',
    'Errors that the gateway itself returned to clients, in a response or a stream, by code (docs/reference/errors.md)',
    ['code'],
  )
  readonly workerRequests = this.hotCounter(
    'eldr_worker_requests_total',
    'Requests sent to a worker, counting each attempt of each leg',
    ['worker', 'leg'],
  )
  readonly decisions = this.hotCounter('eldr_decisions_total', 'Decode decisions by policy and reason', [
    'policy',
    'reason',
  ])
  readonly rejects = this.counter(
    'eldr_signature_rejects_total',
    'Hand-offs whose counts could not be used, by reason',
    ['reason'],
  )
  readonly legFailures = this.counter(
    'eldr_leg_failures_total',
    'Failed attempts on a worker, by kind: connect, reset, timeout, status, handoff, error_event, early_end, garbage, too_large',
    ['worker', 'leg', 'kind'],
  )
  readonly ticketLeaks = this.counter(
    'eldr_ticket_leaks_total',
    'Tickets never released; more than 0 is a bug',
    [],
  )
  readonly restarts = this.counter('eldr_worker_restarts_total', 'Detected worker restarts', ['worker'])
  readonly breakerChanges = this.counter(
    'eldr_breaker_transitions_total',
    'State changes of a worker’s circuit breaker',
    ['worker', 'to'],
  )
  readonly healthChecks = this.counter(
    'eldr_health_checks_total',
    'Health checks of a worker, by result (ok, failed). One check of a server counts for each of its data-parallel ranks',
    ['worker', 'result'],
  )
  readonly routingChanges = this.counter(
    'eldr_routing_changes_total',
    'Changes of policy, artifact, clusters or workers that affect routing, and refused refits, by cause',
    ['cause'],
  )
  readonly adaptEvents = this.counter(
    'eldr_adapt_events_total',
    'Events of live recalibration: drift, judged (a refit was judged), swapped, kept, undone, rolled_back, failed',
    ['event'],
  )
  readonly discoveryChanges = this.counter(
    'eldr_discovery_changes_total',
    'Workers added, drained, undrained or removed by a discovery source',
    ['source', 'change'],
  )

  readonly traceSpans = this.counter('eldr_trace_spans_total', 'Spans accepted by the collector', [])
  readonly traceSpansDropped = this.counter(
    'eldr_trace_spans_dropped_total',
    'Spans not delivered, by reason: queue_full, too_many (spans in one request), failed, rejected (by the collector), shutdown',
    ['reason'],
  )

  readonly routeSeconds = this.histogram(
    'eldr_route_seconds',
    'Time to read the counts of a hand-off and choose a decode worker',
    [],
    ROUTE_SECONDS,
  )
  readonly similarity = this.histogram(
    'eldr_similarity',
    'Cosine similarity between a request and the centroid of its decode worker',
    [],
    [0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 1],
  )
  readonly bandSize = this.histogram(
    'eldr_band_size',
    'Workers in the locality band; policy band only',
    [],
    [1, 2, 3, 4, 6, 8, 12, 16, 32, 64],
  )
  readonly covered = this.histogram(
    'eldr_signature_coverage',
    'Share of the prompt covered by counts',
    [],
    [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1],
  )

  constructor() {
    collectDefaultMetrics({ register: this.registry })
    // Prometheus sees no increase in a series whose first sample is 1: series that alerts use start at 0.
    for (const outcome of OUTCOMES)
      for (const route of ['completions', 'chat']) this.requests.inc(route, outcome, 0)
    for (const code of Object.keys(REFUSALS) as RefusalCode[]) this.errorResponses.inc(code, '', 0)
    for (const reason of [...REJECTS, 'recent_missing']) this.rejects.inc({ reason }, 0)
    for (const event of ['drift', 'judged', 'swapped', 'kept', 'undone', 'rolled_back', 'failed'])
      this.adaptEvents.inc({ event }, 0)
    for (const cause of ['policy', 'artifact', 'refit', 'refit_refused', 'workers', 'model'])
      this.routingChanges.inc({ cause }, 0)
  }

  /** `collect` is called at each scrape. `aggregator`: how the values of several processes are combined. */
  gauge(
    name: string,
    help: string,
    labels: readonly string[],
    collect: Collect,
    aggregator: 'sum' | 'max' = 'sum',
  ): void {
    const gauge: Gauge = new Gauge({
      ...this.#define('gauge', name, help, labels),
      aggregator,
      collect: () => {
        gauge.reset()
        // Without labels a reset leaves a sample of 0, which would be wrong if `collect` sets none.
        if (labels.length === 0) gauge.remove({})
        collect((values, value) => gauge.set(values, value))
      },
    })
  }

  /** A counter kept elsewhere; `collect` reads it at each scrape. */
  readCounter(name: string, help: string, labels: readonly string[], collect: Collect): void {
    const counter: Counter = new Counter({
      ...this.#define('counter', name, help, labels),
      collect: () => {
        counter.reset()
        collect((values, value) => counter.inc(values, value))
      },
    })
  }

  /** Starts the series of a new worker at 0, so that Prometheus sees the first increase. */
  addWorker(worker: string, leg: string): void {
    this.restarts.inc({ worker }, 0)
    for (const to of BREAKER_STATES) this.breakerChanges.inc({ worker, to }, 0)
    for (const result of ['ok', 'failed']) this.healthChecks.inc({ worker, result }, 0)
    this.workerRequests.inc(worker, leg, 0)
  }

  /** Removes the series of a worker. Otherwise they would pile up where workers get new names. */
  async forgetWorker(worker: string): Promise<void> {
    await new Promise(setImmediate) // the end of its last request is counted just after the removal
    this.workerRequests.remove(worker)
    for (const counter of [this.legFailures, this.restarts, this.breakerChanges, this.healthChecks]) {
      const { values } = await counter.get()
      for (const { labels } of values) if (labels['worker'] === worker) counter.remove(labels)
    }
  }

  counter(name: string, help: string, labels: readonly string[]): Counter {
    return new Counter(this.#define('counter', name, help, labels))
  }

  /** For what happens on every request: cheaper than `counter`. */
  hotCounter(name: string, help: string, labels: readonly [string, string?]): HotCounter {
    return new HotCounter(
      this.registry,
      this.#define('counter', name, help, labels as readonly string[]),
      labels,
    )
  }

  histogram(
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
