/** Every expression of the dashboard and of the alerts, as Prometheus receives it. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parse } from 'yaml'

export const deployed = (path: string) => fileURLToPath(new URL(`../../../deploy/${path}`, import.meta.url))

interface Target {
  readonly refId: string
  readonly expr: string
  readonly legendFormat: string
}

export interface Panel {
  readonly type: string
  readonly title: string
  readonly targets?: readonly Target[]
}

export interface Variable {
  readonly name: string
  readonly type: string
  readonly definition?: string
}

export interface Dashboard {
  readonly panels: readonly Panel[]
  readonly templating: { readonly list: readonly Variable[] }
}

export interface Rule {
  readonly alert: string
  readonly expr: string
  readonly for?: string
  readonly labels: { readonly severity: string }
  readonly annotations: {
    readonly summary: string
    readonly description: string
    readonly runbook_url: string
  }
}

export interface RuleFile {
  readonly groups: { readonly name: string; readonly rules: readonly Rule[] }[]
}

export const readDashboard = () =>
  JSON.parse(readFileSync(deployed('grafana/eldr.json'), 'utf8')) as Dashboard
export const readRules = () => parse(readFileSync(deployed('prometheus/alerts.yml'), 'utf8')) as RuleFile

/** Under deploy/prometheus. */
export const RULE_TESTS = ['alerts.test.yml', 'alerts.day.test.yml']

export interface RuleTest {
  readonly name: string
  readonly promql_expr_test: readonly {
    readonly expr: string
    readonly exp_samples: readonly { readonly labels: string }[]
  }[]
}

export const readRuleTests = () =>
  RULE_TESTS.flatMap(
    file => (parse(readFileSync(deployed(`prometheus/${file}`), 'utf8')) as { tests: RuleTest[] }).tests,
  )

export interface Shown {
  /** Panel and query, such as Running A. */
  readonly name: string
  readonly expr: string
  /** That its legend is made of. */
  readonly labels: readonly string[]
}

/** With `All` chosen everywhere, and rates over `window`. */
export function shownBy({ panels }: Dashboard, window: string): Shown[] {
  return panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ refId, expr, legendFormat }) => ({
      name: `${title} ${refId}`,
      expr: filled(expr, window),
      labels: [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label!),
    })),
  )
}

/** What Grafana does with the variables; one that is not known stays, and Prometheus refuses it. */
function filled(expr: string, window: string): string {
  const values: Readonly<Record<string, string>> = {
    __rate_interval: window,
    job: '.*',
    instance: '.*',
    worker: '.*',
  }
  return expr.replaceAll(/\$(\w+)/g, (whole, name: string) => values[name] ?? whole)
}
