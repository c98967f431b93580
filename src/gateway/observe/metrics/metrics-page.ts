/** docs/reference/metrics.md, made from the metrics themselves. */
import { Metrics } from './metrics.ts'
import { addGauges } from './gauges.ts'

export function metricsPage(): string {
  const metrics = new Metrics()
  addGauges(metrics, () => {
    throw new Error('the page shows no values')
  })
  const rows = metrics.definitions
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .map(
      ({ name, type, labels, help }) =>
        `| \`${name}\` | ${type} | ${labels.map(label => `\`${label}\``).join(', ')} | ${help}. |`,
    )
  return [
    '# Metrics of the gateway',
    '',
    '`GET /metrics` in Prometheus’ text format, on the main port or on `server.metricsPort` (`--prometheus-port`) where that is set. Values of labels come from fixed lists and from the names of workers, so that there are few of them; series of a worker that was removed go with it. Beside these there are `process_*` and `nodejs_*` of the process. `deploy/` has a Grafana dashboard of them and alerting rules; [alerts.md](alerts.md) says what to do when one fires.',
    '',
    '| metric | type | labels | meaning |',
    '|---|---|---|---|',
    ...rows,
    '',
    'This page is made by `npm run docs` from `src/gateway/observe/metrics/metrics.ts` and `src/gateway/observe/metrics/gauges.ts`.',
    '',
  ].join('\n')
}
