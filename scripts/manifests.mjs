// Writes the alerts for the Prometheus operator from deploy/prometheus/alerts.yml, which promtool tests: the
// PrometheusRule of the plain manifests, and a copy for the Helm chart, which cannot read files outside of
// itself. With --check it only fails if one is stale.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'

const deployed = path => new URL(`../deploy/${path}`, import.meta.url)
const SOURCE = 'prometheus/alerts.yml'
const MADE = `# Generated from deploy/${SOURCE} by scripts/manifests.mjs: change it there.\n`
/**
 * The prefix of an alert's anchor in alerts.yml, and its replacement in the manifests (the chart's
 * prometheusRule.runbookBase).
 */
const RUNBOOK = 'runbook_url: docs/reference/alerts.md#'
const RUNBOOK_BASE = 'https://eldr.example/docs/reference/alerts.md'

const source = readFileSync(deployed(SOURCE), 'utf8')
const groups = source.slice(source.indexOf('groups:\n'))

const manifest = `${MADE}# runbook_url points to ${RUNBOOK_BASE}: replace it with the address at which you serve that page.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: eldr
  labels:
    app.kubernetes.io/name: eldr
spec:
${groups.replaceAll(RUNBOOK, `runbook_url: ${RUNBOOK_BASE}#`).replaceAll(/^(?=.)/gm, '  ')}`

for (const [path, text] of [
  ['kubernetes/monitoring/prometheus-rule.yaml', manifest],
  ['helm/eldr/files/alerts.yml', MADE + groups],
]) {
  const file = deployed(path)
  if (!process.argv.includes('--check')) {
    mkdirSync(new URL('.', file), { recursive: true })
    writeFileSync(file, text)
  } else if (!existsSync(file) || readFileSync(file, 'utf8') !== text) {
    console.error(`deploy/${path} is stale: run \`node scripts/manifests.mjs\``)
    process.exitCode = 1
  }
}
