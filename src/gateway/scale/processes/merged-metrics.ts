/**
 * Metrics of all processes as those of one gateway. Counts of a process are kept when it exits: Prometheus
 * would take a sum that falls for a counter reset, and count everything since as new.
 */
import { AggregatorRegistry, type MetricObjectWithValues, type MetricValue } from 'prom-client'

export type MetricsJson = readonly MetricObjectWithValues<MetricValue<string>>[]

/** Requests to the owner come through a relay, which counts them. */
const RELAYS_COUNT = new Set(['eldr_requests_total'])

export class MergedMetrics {
  /** Counters and histograms of processes that have exited. */
  #kept: MetricsJson
  readonly #lastOf: Map<number, MetricsJson>
  /** Metrics that are being added to `#kept`: a scrape must not miss them meanwhile. */
  readonly #pending = new Set<MetricsJson>()
  /** Sums are asynchronous, so they run one after the other. */
  #queue: Promise<void> = Promise.resolve()

  /** `seen`: last reports of the relays to the owner before. */
  constructor(kept: MetricsJson = [], seen: Readonly<Record<string, MetricsJson>> = {}) {
    this.#kept = kept
    this.#lastOf = new Map(Object.entries(seen).map(([relay, metrics]) => [Number(relay), metrics]))
  }

  get kept(): MetricsJson {
    return this.#kept
  }

  get seen(): Readonly<Record<string, MetricsJson>> {
    return Object.fromEntries(this.#lastOf)
  }

  saw(relay: number, metrics: MetricsJson): void {
    this.#lastOf.set(relay, metrics)
  }

  /** The relay has exited: its last report counts. */
  async gone(relay: number): Promise<void> {
    const last = this.#lastOf.get(relay)
    this.#lastOf.delete(relay)
    if (last !== undefined) await this.keep(last)
  }

  keep(metrics: MetricsJson): Promise<void> {
    const counted = metrics.filter(({ type }) => isCounted(type))
    this.#pending.add(counted)
    return this.#enqueue(async () => {
      this.#kept = await sum([this.#kept, counted])
      this.#pending.delete(counted)
    })
  }

  /** Removes the series of a worker. */
  forgetWorker(worker: string): Promise<void> {
    return this.#enqueue(() => {
      this.#kept = this.#kept.map(metric => ({
        ...metric,
        values: metric.values.filter(
          ({ labels }) => (labels as Record<string, unknown>)['worker'] !== worker,
        ),
      }))
    })
  }

  /** `own`: metrics of the owner. */
  async text(own: MetricsJson): Promise<string> {
    return AggregatorRegistry.aggregate(
      [ownPart(own), ...this.#lastOf.values(), ...this.#pending, this.#kept].map(copied),
    ).metrics()
  }

  #enqueue(work: () => Promise<void> | void): Promise<void> {
    return (this.#queue = this.#queue.then(work))
  }
}

/** The part of the owner's metrics that the next owner keeps. */
export function ownPart(own: MetricsJson): MetricsJson {
  return own.filter(({ name }) => !RELAYS_COUNT.has(name))
}

async function sum(parts: readonly MetricsJson[]): Promise<MetricsJson> {
  return AggregatorRegistry.aggregate(parts.map(copied)).getMetricsAsJSON()
}

/** At runtime the type is a string, unlike in prom-client's declarations. */
function isCounted(type: unknown): boolean {
  return type === 'counter' || type === 'histogram'
}

/** prom-client requires mutable arrays. */
function copied(metrics: MetricsJson): MetricObjectWithValues<MetricValue<string>>[] {
  return [...metrics]
}
