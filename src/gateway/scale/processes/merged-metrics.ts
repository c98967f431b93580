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
  readonly #lastOf: Map<number, MetricsJson>
  /** Of relays that are gone, until they are in what is kept: whoever asks meanwhile must not miss them. */
  readonly #going = new Set<MetricsJson>()
  /** Sums take a moment and must not lose each other. */
  #turn: Promise<void> = Promise.resolve()

  /** `seen`: what relays told the last owner. */
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

  /** What it said last is what it has counted. */
  async gone(relay: number): Promise<void> {
    const last = this.#lastOf.get(relay)
    this.#lastOf.delete(relay)
    if (last !== undefined) await this.keep(last)
  }

  keep(metrics: MetricsJson): Promise<void> {
    const counted = metrics.filter(({ type }) => isCounted(type))
    this.#going.add(counted)
    return this.#inTurn(async () => {
      this.#kept = await sum([this.#kept, counted])
      this.#going.delete(counted)
    })
  }

  /** Series of a worker that is gone go with it. */
  forgetWorker(worker: string): Promise<void> {
    return this.#inTurn(() => {
      this.#kept = this.#kept.map(metric => ({
        ...metric,
        values: metric.values.filter(
          ({ labels }) => (labels as Record<string, unknown>)['worker'] !== worker,
        ),
      }))
    })
  }

  /** `own`: the owner's. */
  async text(own: MetricsJson): Promise<string> {
    return AggregatorRegistry.aggregate(
      [ownPart(own), ...this.#lastOf.values(), ...this.#going, this.#kept].map(copied),
    ).metrics()
  }

  #inTurn(work: () => Promise<void> | void): Promise<void> {
    return (this.#turn = this.#turn.then(work))
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
