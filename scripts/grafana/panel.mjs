// What the rows are written with. A panel is plain data: dashboard.mjs makes Grafana's JSON of it.

/** Series of the gateways that were chosen; with more matchers, such as leg="decode". */
export const of = (metric, more = '') => `${metric}{job=~"$job", instance=~"$instance"${more && `, ${more}`}}`
/** Of the workers that were chosen, as the gateway counts them. */
export const ofWorkers = (metric, more = '') => of(metric, `worker=~"$worker"${more && `, ${more}`}`)
/** What workers say themselves: deploy/prometheus/prometheus.yml gives their series the names that the gateway has for them. */
export const own = (metric, more = '') => `${metric}{worker=~"$worker"${more && `, ${more}`}}`
export const rate = series => `rate(${series}[$__rate_interval])`
export const sum = (by, what) => `sum by (${by}) (${what})`

/** p50, p95 and p99 of a histogram. */
export const quantiles = metric =>
  [0.5, 0.95, 0.99].map(q => ({
    expr: `histogram_quantile(${q}, sum by (le) (${rate(of(`${metric}_bucket`))}))`,
    legend: `p${q * 100}`,
  }))

const panel = (kind, width, height) => (title, unit, text, queries, more) => ({
  kind,
  width,
  height,
  title,
  unit,
  text,
  queries: typeof queries === 'string' ? [{ expr: queries }] : queries,
  ...more,
})

/** One number. */
export const stat = panel('stat', 4, 4)
export const graph = panel('timeseries', 8, 8)
/** A band of colour over time. */
export const states = panel('state-timeline', 12, 8)
