/**
 * Metrics of all processes as those of one gateway. What a process counted stays counted when it is gone: a sum that falls would look to
 * Prometheus like a counter that began again, and everything since as if it had happened now.
 */
import { AggregatorRegistry, type MetricObjectWithValues, type MetricValue } from 'prom-client'

export type MetricsJson = readonly MetricObjectWithValues<MetricValue<string>>[]

/** Requests to the owner came through a relay, which has counted them. */
const RELAYS_COUNT = new Set(['eldr_requests_total'])

export class MergedMetrics {
  /** Of processes that are gone: counters and histograms. */
  #kept: MetricsJson
  readonly #lastOf = new Map<number, MetricsJson>()

  constructor(kept: MetricsJson = []) {
    this.#kept = kept
  }

  get kept(): MetricsJson {
    return this.#kept
  }

  saw(relay: number, metrics: MetricsJson): void {
    this.#lastOf.set(relay, metrics)
  }

  /** What it said last is what it has counted. */
  async gone(relay: number): Promise<void> {
    const last = this.#lastOf.get(relay)
    if (last === undefined) return
    this.#lastOf.delete(relay)
    await this.keep(last)
  }

  async keep(metrics: MetricsJson): Promise<void> {
    this.#kept = await sum([this.#kept, metrics.filter(({ type }) => isCounted(type))])
  }

  /** Series of a worker that is gone go with it. */
  forgetWorker(worker: string): void {
    this.#kept = this.#kept.map(metric => ({
      ...metric,
      values: metric.values.filter(({ labels }) => (labels as Record<string, unknown>)['worker'] !== worker),
    }))
  }

  /** `own`: the owner's. */
  async text(own: MetricsJson): Promise<string> {
    return AggregatorRegistry.aggregate([ownPart(own), ...this.#lastOf.values(), this.#kept].map(copied)).metrics()
  }
}

/** What a next owner is to keep of this one. */
export function ownPart(own: MetricsJson): MetricsJson {
  return own.filter(({ name }) => !RELAYS_COUNT.has(name))
}

async function sum(parts: readonly MetricsJson[]): Promise<MetricsJson> {
  return AggregatorRegistry.aggregate(parts.map(copied)).getMetricsAsJSON()
}

/** Types come as words from our own metrics, whatever prom-client's declarations say. */
function isCounted(type: unknown): boolean {
  return type === 'counter' || type === 'histogram'
}

/** prom-client wants lists that it may change. */
function copied(metrics: MetricsJson): MetricObjectWithValues<MetricValue<string>>[] {
  return [...metrics]
}
