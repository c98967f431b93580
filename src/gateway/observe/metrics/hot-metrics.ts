/**
 * Counters and histograms that every request updates. prom-client hashes the labels of each sample; these
 * keep plain numbers, one series per label value, and build the samples when metrics are scraped.
 */
import type { Histogram, Registry } from 'prom-client'

export interface HotMetric {
  readonly name: string
  readonly help: string
}

type Labels = Readonly<Record<string, string>>

export class Series {
  readonly #bounds: readonly number[]
  readonly counts: Float64Array
  sum = 0
  count = 0

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds
    this.counts = new Float64Array(bounds.length)
  }

  observe(value: number): void {
    const bounds = this.#bounds
    let at = 0
    while (at < bounds.length && value > bounds[at]!) at++
    if (at < bounds.length) this.counts[at]!++
    this.sum += value
    this.count++
  }
}

export class HotHistogram {
  readonly name: string
  readonly #help: string
  readonly #label: string | undefined
  readonly #bounds: readonly number[]
  readonly #series = new Map<string, Series>()

  constructor(registry: Registry, { name, help }: HotMetric, bounds: readonly number[], label?: string) {
    this.name = name
    this.#help = help
    this.#label = label
    this.#bounds = bounds
    if (label === undefined) this.series('')
    // The registry only uses `name` and `get`, but its type accepts only prom-client's own classes.
    registry.registerMetric(this as unknown as Histogram)
  }

  /** The series of one label value. */
  series(value: string): Series {
    let series = this.#series.get(value)
    if (series === undefined) this.#series.set(value, (series = new Series(this.#bounds)))
    return series
  }

  observe(value: number): void {
    this.series('').observe(value)
  }

  get() {
    const values: { labels: Labels; value: number; metricName: string }[] = []
    for (const [name, { counts, sum, count }] of this.#series) {
      const labels: Labels = this.#label === undefined ? {} : { [this.#label]: name }
      let below = 0
      this.#bounds.forEach((bound, at) => {
        below += counts[at]!
        values.push({
          labels: { le: String(bound), ...labels },
          value: below,
          metricName: `${this.name}_bucket`,
        })
      })
      values.push(
        { labels: { le: '+Inf', ...labels }, value: count, metricName: `${this.name}_bucket` },
        { labels, value: sum, metricName: `${this.name}_sum` },
        { labels, value: count, metricName: `${this.name}_count` },
      )
    }
    return Promise.resolve({
      name: this.name,
      help: this.#help,
      type: 'histogram',
      values,
      aggregator: 'sum',
    })
  }
}

export class HotCounter {
  readonly name: string
  readonly #help: string
  readonly #labels: readonly string[]
  /** By value of the first label, then of the second. */
  readonly #series = new Map<string, Map<string, number>>()

  constructor(registry: Registry, { name, help }: HotMetric, labels: readonly [string, string?]) {
    this.name = name
    this.#help = help
    this.#labels = labels.filter(label => label !== undefined)
    registry.registerMetric(this as unknown as Histogram)
  }

  inc(first: string, second = '', by = 1): void {
    let series = this.#series.get(first)
    if (series === undefined) this.#series.set(first, (series = new Map<string, number>()))
    series.set(second, (series.get(second) ?? 0) + by)
  }

  /** Removes all series with this value of the first label. */
  remove(first: string): void {
    this.#series.delete(first)
  }

  get() {
    const [one, two] = this.#labels
    const values = [...this.#series].flatMap(([first, series]) =>
      [...series].map(([second, value]) => ({
        labels: two === undefined ? { [one!]: first } : { [one!]: first, [two]: second },
        value,
      })),
    )
    return Promise.resolve({ name: this.name, help: this.#help, type: 'counter', values, aggregator: 'sum' })
  }
}
