/** Writes docs/reference/metrics.md from the metric definitions. */
import { Metrics } from './metrics.ts'
import { addGauges } from './gauges.ts'
import { requestMetrics } from './request-metrics.ts'

export function metricsPage(): string {
  const metrics = new Metrics()
  addGauges(metrics, () => {
    throw new Error('the page shows no values')
  })
  requestMetrics(metrics)
  const rows = metrics.definitions
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .map(
      ({ name, type, labels, help }) =>
        `| \`${name}\` | ${type} | ${labels.map(label => `\`${label}\``).join(', ')} | ${help}. |`,
    )
  return [
    '# Gateway metrics',
    '',
    [
      '`GET /metrics` returns these metrics in the Prometheus text format, on the main port or on',
      '`server.metricsPort` (`--prometheus-port`) if that is set. Label values come from fixed lists and worker names,',
      'so there are few of them; the series of a worker are removed with it. `process_*` and `nodejs_*` metrics are',
      'exported too. `deploy/` has a Grafana dashboard and alerting rules; [alerts.md](alerts.md) says what to do when',
      'an alert fires.',
    ].join(' '),
    '',
    '| metric | type | labels | meaning |',
    '|---|---|---|---|',
    ...rows,
    '',
    '`npm run docs` generates this page from `src/gateway/observe/metrics/`.',
    '',
  ].join('\n')
}
