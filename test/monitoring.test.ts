/**
 * Checks the files for Prometheus and Grafana and their documents, without running either; `npm run test:ops`
 * uses the real ones.
 */
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { REFUSALS } from '../src/gateway/http/refusal.ts'
import { addGauges } from '../src/gateway/observe/metrics/gauges.ts'
import { requestMetrics } from '../src/gateway/observe/metrics/request-metrics.ts'
import { Metrics } from '../src/gateway/observe/metrics/metrics.ts'
import { OUTCOMES } from '../src/gateway/observe/request-observer.ts'
import { REASONS } from '../src/policy/decode-policy.ts'
import { WorkerMetrics } from '../src/worker/server/metrics.ts'
import {
  readDashboard,
  readRules,
  readRuleTests,
  type RuleFile,
  shownBy,
} from './ops/prometheus/expressions.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const text = (path: string) => readFileSync(join(root, path), 'utf8')
const rules = readRules().groups.flatMap(group => group.rules)

/** Metrics of the gateway, the embedded worker and the vLLM plugin (Python). */
function knownMetrics(): Set<string> {
  const gateway = new Metrics()
  requestMetrics(gateway)
  addGauges(gateway, () => {
    throw new Error('values are not read')
  })
  const histograms = gateway.definitions
    .filter(({ type }) => type === 'histogram')
    .flatMap(({ name }) => ['_bucket', '_sum', '_count'].map(part => name + part))
  const worker = new WorkerMetrics({
    engine: {
      stats: () => {
        throw new Error('stats are not read')
      },
    },
    model: 'm',
    rank: 0,
    kv: () => undefined,
  })
  const workerMetrics = worker.registry.getMetricsAsArray().map(({ name }) => name)
  const python = [...text('python/eldr_vllm/metrics.py').matchAll(/name="(eldr_\w+)"/g)].flatMap(
    ([, name]) => [name!, `${name}_total`],
  )
  return new Set([...gateway.definitions.map(({ name }) => name), ...histograms, ...workerMetrics, ...python])
}

/** Words that look like metrics but are not: a request field, a package, artifact metadata. */
const OTHER_WORDS = new Set(['eldr_row', 'eldr_vllm', 'eldr_version', 'eldr_connector'])

function documents(): string[] {
  const pages = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.md'))
    .map(name => `docs/${name}`)
  const deployed = readdirSync(join(root, 'deploy'), { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => join(entry.parentPath, entry.name).slice(root.length))
  return [...pages, ...deployed, 'README.md', 'python/README.md']
}

describe('metrics', () => {
  it('named in documents, dashboard and rules exist', () => {
    const known = knownMetrics()
    const wrong = documents().flatMap(file =>
      [...text(file).matchAll(/\beldr_[a-z0-9_]*[a-z0-9]/g)]
        .filter(([name]) => !known.has(name) && !OTHER_WORDS.has(name))
        .map(([name]) => `${file}: ${name}`),
    )
    expect(wrong).toEqual([])
    expect(known.size).toBeGreaterThan(60)
  })

  it('are all on the dashboard or in a rule, with known exceptions', () => {
    const shown =
      shownBy(readDashboard(), '1m')
        .map(({ expr }) => expr)
        .join('\n') + rules.map(({ expr }) => expr).join('\n')
    const gateway = new Metrics()
    requestMetrics(gateway)
    addGauges(gateway, () => {
      throw new Error('values are not read')
    })
    const unseen = gateway.definitions.map(({ name }) => name).filter(name => !shown.includes(name))
    // The first has no value before a refit (GET /eldr/adapt shows it), the breaker panel covers the second,
    // the collector shows traces, GET /eldr/shadow shows shadow policies, streams are resumed only with
    // --resume, alerts cover discovery and replicas; the rest is for debugging one gateway.
    expect(unseen.toSorted()).toEqual([
      'eldr_adapt_predicted_gain',
      'eldr_breaker_transitions_total',
      'eldr_discovery_changes_total',
      'eldr_discovery_last_success_seconds',
      'eldr_experiment_running',
      'eldr_queue_limit',
      'eldr_replica_changes_waiting',
      'eldr_replica_ignored_total',
      'eldr_replica_messages_total',
      'eldr_replica_view_age_seconds',
      'eldr_resume_pause_seconds',
      'eldr_shadow_cost_seconds_total',
      'eldr_shadow_decisions_total',
      'eldr_shadow_errors_total',
      'eldr_shadow_experts_total',
      'eldr_shadow_judged_total',
      'eldr_step_cost_streams',
      'eldr_streams_not_resumed_total',
      'eldr_streams_resumed_total',
      'eldr_trace_spans_dropped_total',
      'eldr_trace_spans_total',
      'eldr_worker_connections_total',
    ])
  })

  it('have only existing label values in dashboard and rules', () => {
    const exprs = [
      ...shownBy(readDashboard(), '1m').map(({ expr }) => expr),
      ...rules.map(({ expr }) => expr),
    ]
    const values = (label: string) =>
      new Set(
        exprs.flatMap(expr =>
          [...expr.matchAll(new RegExp(`\\b${label}=~?"([^"]+)"`, 'g'))].flatMap(([, value]) =>
            value!.split('|'),
          ),
        ),
      )
    const unknown = (label: string, allowed: readonly string[]) =>
      [...values(label)].filter(value => !allowed.includes(value))
    expect(unknown('outcome', OUTCOMES)).toEqual([])
    expect(unknown('code', Object.keys(REFUSALS))).toEqual([])
    expect(unknown('reason', REASONS)).toEqual([])
    expect(unknown('state', ['ready', 'draining', 'unhealthy', 'open', 'unknown'])).toEqual([])
    expect(values('outcome').size).toBeGreaterThan(2)
  })
})

describe('deploy/grafana/eldr.json', () => {
  it('is up to date with scripts/grafana (otherwise run `node scripts/grafana.mjs`)', () => {
    const { status, stderr } = spawnSync(process.execPath, [join(root, 'scripts/grafana.mjs'), '--check'], {
      encoding: 'utf8',
    })
    expect([status, stderr]).toEqual([0, ''])
  })

  it('has panels that do not overlap, each with a title, a description and the selected data source', () => {
    const { panels } = JSON.parse(text('deploy/grafana/eldr.json')) as {
      panels: {
        id: number
        type: string
        title: string
        description?: string
        datasource?: { uid: string }
        gridPos: { x: number; y: number; w: number; h: number }
      }[]
    }
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, n) => `${x + (n % w)} ${y + Math.floor(n / w)}`),
    )
    expect(new Set(cells).size).toBe(cells.length)
    expect(panels.every(({ gridPos: { x, w } }) => x + w <= 24)).toBe(true)
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    const graphs = panels.filter(({ type }) => type !== 'row')
    expect(
      graphs.filter(
        ({ title, description, datasource }) =>
          title === '' || !/^[^]+\.$/.test(description ?? '') || datasource?.uid !== '${datasource}',
      ),
    ).toEqual([])
    expect(panels.filter(({ type }) => type === 'row').map(({ title }) => title)).toEqual([
      'Overview',
      'Routing',
      'Workers',
      'Gateway',
    ])
  })
})

describe('deploy/prometheus/alerts.yml', () => {
  it('is the source of the manifests (otherwise run `node scripts/manifests.mjs`)', () => {
    const { status, stderr } = spawnSync(process.execPath, [join(root, 'scripts/manifests.mjs'), '--check'], {
      encoding: 'utf8',
    })
    expect([status, stderr]).toEqual([0, ''])
  })

  it('has the same rules as the manifests, whose runbook links are absolute', () => {
    const { spec } = parse(text('deploy/kubernetes/monitoring/prometheus-rule.yaml')) as { spec: RuleFile }
    const addressed = (url: string) =>
      url.replace(/^docs\/reference\/alerts\.md#/, 'https://eldr.example/docs/reference/alerts.md#')
    const expected = rules.map(rule => ({
      ...rule,
      annotations: { ...rule.annotations, runbook_url: addressed(rule.annotations.runbook_url) },
    }))
    expect(spec.groups.flatMap(group => group.rules)).toEqual(expected)
    expect(parse(text('deploy/helm/eldr/files/alerts.yml'))).toEqual(readRules())
    expect(
      (parse(text('deploy/helm/eldr/values.yaml')) as { prometheusRule: { runbookBase: string } })
        .prometheusRule.runbookBase,
    ).toBe('https://eldr.example/docs/reference/alerts.md')
  })

  it('has a severity, texts and a section of docs/reference/alerts.md for each alert', () => {
    const sections = [...text('docs/reference/alerts.md').matchAll(/^### (Eldr\w+)$/gm)].map(
      ([, name]) => name!,
    )
    expect(sections).toEqual(expect.arrayContaining(rules.map(({ alert }) => alert)))
    expect(sections).toHaveLength(rules.length)
    for (const { alert, labels, annotations } of rules) {
      expect(['critical', 'warning', 'info']).toContain(labels.severity)
      expect(annotations.summary, alert).toMatch(/\w/)
      expect(annotations.description, alert).toMatch(/\.$/)
      expect(annotations.runbook_url).toBe(`docs/reference/alerts.md#${alert.toLowerCase()}`)
      expect(text('docs/reference/alerts.md'), alert).toMatch(
        new RegExp(`### ${alert}\\n\\n\\*\\*${labels.severity}\\.\\*\\*`, 'i'),
      )
    }
  })

  it('has a firing and a quiet test for each alert, whose texts use only labels that it fires with', () => {
    const tests = readRuleTests()
    for (const { alert, annotations } of rules) {
      const cases = tests.filter(({ name }) => name === alert).flatMap(test => test.promql_expr_test)
      expect(
        cases.some(({ exp_samples: samples }) => samples.length === 0),
        alert,
      ).toBe(true)
      const firing = cases.flatMap(({ exp_samples: samples }) => samples)
      expect(
        firing.some(({ labels }) => labels.includes(`alertname="${alert}"`)),
        alert,
      ).toBe(true)
      const named = [...JSON.stringify(annotations).matchAll(/\$labels\.(\w+)/g)].map(([, label]) => label!)
      expect(
        named.filter(label => !firing.some(({ labels }) => new RegExp(`\\b${label}="`).test(labels))),
        alert,
      ).toEqual([])
    }
  })

  it('has a page, docs/reference/alerts.md, that names existing panels', () => {
    const titles = new Set(readDashboard().panels.map(({ title }) => title))
    const mentioned = [...text('docs/reference/alerts.md').matchAll(/(?<!\*)\*([^*\n]+)\*(?!\*)/g)].map(
      ([, title]) => title!,
    )
    expect(mentioned.length).toBeGreaterThan(30)
    expect(mentioned.filter(title => !titles.has(title))).toEqual([])
  })
})
