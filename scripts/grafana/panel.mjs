// Helpers for the rows. A panel is plain data; dashboard.mjs converts it to Grafana's JSON.

/** Series of the selected gateways; `more` adds matchers such as leg="decode". */
export const of = (metric, more = '') => `${metric}{job=~"$job", instance=~"$instance"${more && `, ${more}`}}`
/** The gateway's series of the selected workers. */
export const ofWorkers = (metric, more = '') => of(metric, `worker=~"$worker"${more && `, ${more}`}`)
/**
 * Series that workers export themselves; deploy/prometheus/prometheus.yml labels them with the gateway's
 * worker names.
 */
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

/** A single number. */
export const stat = panel('stat', 4, 4)
export const graph = panel('timeseries', 8, 8)
/** A state timeline. */
export const states = panel('state-timeline', 12, 8)
