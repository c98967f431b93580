import { readFileSync } from 'node:fs'
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { documentedValues, readmeWith } from '../../../scripts/chart-docs.mjs'
import { DEFAULT_POLICY } from '../../../src/policy/decode-policy.ts'
import { readRules } from '../prometheus/expressions.ts'
import { gatewayIn, settingsOf } from './gateway-config.ts'
import { objectsIn, ofKind } from './objects.ts'
import { problemsOfReferences } from './references.ts'
import { helm, kustomized, canKustomize, templated, VALUES } from './renderings.ts'
import { CHART, output, ROOT, run } from './tools.ts'

const read = (name: string) => readFileSync(join(CHART, name), 'utf8')

/**
 * The text that `helm install` ends with. It needs a cluster, and `helm template` leaves that text out: so in
 * a copy of the chart it is one more manifest.
 */
async function notes(...args: string[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'eldr-chart-'))
  try {
    await cp(CHART, folder, { recursive: true })
    const manifest = `{{- define "notes" }}${read('templates/NOTES.txt')}{{ end -}}\nkind: Notes\ntext: {{ include "notes" . | toJson }}\n`
    await writeFile(join(folder, 'templates', 'notes.yaml'), manifest)
    const text = await output(helm!, [
      'template',
      'eldr',
      folder,
      '--show-only',
      'templates/notes.yaml',
      ...args,
    ])
    return (parse(text) as { text: string }).text
  } finally {
    await rm(folder, { recursive: true })
  }
}

const alertsIn = (text: string) => ofKind(objectsIn(text), 'PrometheusRule')[0]!.spec

describe.runIf(helm !== undefined)('the chart', () => {
  it('passes helm lint --strict with every file of values', async () => {
    const files = [[], ...VALUES.map(file => ['--values', file])]
    for (const values of files)
      expect(await run(helm!, ['lint', '--strict', CHART, ...values])).toMatchObject({ code: 0 })
  })

  it.each([
    ['a value that it does not know', ['replica=3'], /replica/],
    ['a number where a text is wanted', ['service.port=http'], /service\.port/],
    ['a worker that is no URL', ['workers.decode={10.0.0.1:8000}'], /workers\.decode\.0/],
    ['a port of the gateway', ['config.server.port=1'], /config\.server\.port is set by the chart/],
    ['processes in the wrong place', ['config.server.processes=4'], /use service\.port, processes/],
    ['workers in the wrong place', ['config.workers.decode={http://a}'], /use workers\.decode/],
    [
      'what discovery follows in the wrong place',
      ['config.discovery.kubernetes.enabled=true'],
      /use discovery\.enabled/,
    ],
    [
      'workers that are both named and found',
      ['discovery.enabled=true,workers.decode={http://a:1}'],
      /exclude each other/,
    ],
    [
      'discovery without a port of the API',
      ['discovery.enabled=true,networkPolicy.apiServerPorts=null'],
      /apiServerPorts is needed/,
    ],
    ['a store that is no Redis', ['replicaStore.url=http://valkey:6379'], /replicaStore\.url/],
    ['a store in the wrong place', ['config.replicas.url=redis://valkey'], /use replicaStore\.url/],
    [
      'a runbook that is no address',
      ['prometheusRule.runbookBase=docs/reference/alerts.md'],
      /prometheusRule\.runbookBase/,
    ],
    ['an artifact without its volume', ['artifact.file=a.safetensors'], /needs artifact\.volume/],
  ])('refuses %s', async (_, values, message) => {
    const { code, stderr } = await run(helm!, ['template', 'eldr', CHART, '--set', values.join(',')])
    expect(code).toBe(1)
    expect(stderr).toMatch(message)
  })

  it('gives gateways a directory for sockets and for artifacts that they receive', async () => {
    const tmp = async (...args: string[]) => {
      const objects = objectsIn(await templated(...args))
      const { spec } = gatewayIn(objects).spec.template as unknown as {
        spec: {
          volumes: { name: string; emptyDir?: object }[]
          containers: { volumeMounts: { name: string; mountPath: string }[] }[]
        }
      }
      const mount = spec.containers[0]!.volumeMounts.find(({ mountPath }) => mountPath === '/tmp')
      return {
        volume: spec.volumes.find(({ name }) => name === mount?.name),
        config: JSON.stringify(ofKind(objects, 'ConfigMap')),
      }
    }
    const several = await tmp('--set', 'processes=4')
    expect(several.volume).toEqual({ name: 'tmp', emptyDir: {} })
    expect(several.config).toMatch(/processes: 4/)
    const one = await tmp()
    expect(one.volume).toEqual({ name: 'tmp', emptyDir: {} })
    expect(one.config).not.toContain('processes')
  })

  it('routes by eldr if gateways have an artifact and share nothing, unless a policy is set', async () => {
    const policyWith = async (...values: string[]) => {
      const artifact = ['artifact.file=a.safetensors', 'artifact.volume.emptyDir.medium=Memory']
      const text = await templated('--set', [...artifact, ...values].join(','))
      return (await settingsOf(objectsIn(text))).routing.policy
    }
    expect(await policyWith()).toBe('eldr')
    expect(await policyWith('replicas=1', 'autoscaling.enabled=true')).toBe('eldr')
    expect(await policyWith('config.routing.policy=jsq')).toBe('jsq')
    expect(await policyWith('config.routing.prefillPolicy=round_robin')).toBe('eldr')
    for (const values of [
      'replicas=1',
      'replicaStore.url=redis://valkey:6379',
      'replicaStore.existingSecret=mine',
    ])
      expect(await policyWith(values)).toBe(DEFAULT_POLICY)
    expect((await settingsOf(objectsIn(await templated()))).routing.policy).toBe(DEFAULT_POLICY)
  })

  it('restarts pods only if configuration or tokens change', async () => {
    const pod = async (...args: string[]) =>
      JSON.stringify(gatewayIn(objectsIn(await templated(...args))).spec.template)
    const first = await pod()
    expect(await pod()).toBe(first)
    expect(await pod('--set', 'service.port=81')).toBe(first)
    expect(await pod('--set', 'config.routing.tau=0.2')).not.toBe(first)
    expect(await pod('--set', 'decode.replicas=5')).not.toBe(first)
    const follows = 'discovery.enabled=true'
    expect(await pod('--set', `${follows},decode.replicas=5`)).toBe(await pod('--set', follows))
    expect(await pod('--set', 'auth.adminToken=a')).not.toBe(await pod('--set', 'auth.adminToken=b'))
  })

  it('mounts tokens as files, and puts none into the environment or the ConfigMap', async () => {
    const text = await templated(
      '--set',
      'auth.adminToken=admin-secret,auth.apiKeys={first-secret,second-secret}',
    )
    const objects = objectsIn(text)
    const [secret] = ofKind(objects, 'Secret') as unknown as { stringData: Record<string, string> }[]
    expect(secret!.stringData).toEqual({
      'admin-token': 'admin-secret',
      'api-keys': 'first-secret\nsecond-secret',
    })
    expect(text.match(/(admin|first|second)-secret/g)).toHaveLength(3)
    expect(ofKind(objectsIn(await templated('--set', 'auth.existingSecret=mine')), 'Secret')).toEqual([])
  })

  it('allows network access to workers only, and to any address only if workers are given by address', async () => {
    const egress = async (...args: string[]) =>
      ofKind(objectsIn(await templated(...args)), 'NetworkPolicy')[0]!.spec.egress!
    expect(
      (await egress()).filter(
        ({ to, ports }) => to === undefined && ports?.every(({ port }) => port === 53) !== true,
      ),
    ).toEqual([])
    expect(await egress('--set', 'workers.decode={http://10.0.0.1:8000}')).toEqual([{}])
    expect(await egress('--set', 'replicaStore.existingSecret=store')).toEqual([
      ...(await egress()),
      { ports: [{ port: 6379 }] },
    ])
    expect(await egress('--set', 'discovery.enabled=true')).toEqual([
      ...(await egress()),
      { ports: [{ port: 443 }, { port: 6443 }] },
    ])
  })

  it('prints after the installation which workers it uses and which access is open', async () => {
    const closed = await notes('--values', join(CHART, 'ci', 'static-values.yaml'))
    expect(closed).toContain('decode  http://10.0.1.1:8000\n  decode  http://10.0.1.2:8000\n')
    expect(closed).not.toMatch(/No API key|No admin token/)
    const open = await notes()
    expect(open).toMatch(/No API key is set[^]*No admin token is set/)
    expect(open).toContain('decode  http://eldr-decode-1.eldr-decode.default.svc.cluster.local:8000\n')
    expect(open).not.toContain('prometheusRule')
    const following = await notes('--values', join(CHART, 'ci', 'discovery-values.yaml'))
    expect(following).toContain(
      'follows the pods of these services:\n  prefill  eldr-prefill\n  decode  eldr-decode\n',
    )
    expect(following).toContain('which does not exist. See prometheusRule.runbookBase.')
  })

  it.runIf(canKustomize)('has the alerts of the plain manifests', async () => {
    expect(alertsIn(await templated('--set', 'prometheusRule.enabled=true'))).toEqual(
      alertsIn(await kustomized('monitoring')),
    )
  })

  it('has the tested alerts, for the job of its release and with a configurable runbook URL', async () => {
    const values = [
      '--set',
      'serviceMonitor.enabled=true,prometheusRule.enabled=true,prometheusRule.runbookBase=https://a.example/b?c=d',
    ]
    const text = await output(helm!, ['template', 'other', CHART, '--namespace', 'eldr', ...values])
    expect(problemsOfReferences(objectsIn(text))).toEqual([])
    const tested = readRules().groups.flatMap(({ rules }) => rules)
    const alerts = alertsIn(text).groups!.flatMap(({ rules }) => rules)
    expect(alerts).toEqual(
      tested.map(({ annotations, ...rule }) => ({
        ...rule,
        expr: rule.expr.replaceAll('job="eldr"', 'job="other"'),
        annotations: { ...annotations, runbook_url: `https://a.example/b?c=d#${rule.alert.toLowerCase()}` },
      })),
    )
    expect(alerts.filter(({ expr }) => expr.includes('job="other"')).length).toBeGreaterThan(2)
  })
})

describe('the documents of the chart', () => {
  it('have the version of this release', () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
    expect(parse(read('Chart.yaml'))).toMatchObject({ version, appVersion: version })
    expect(readFileSync(join(ROOT, 'deploy', 'Containerfile'), 'utf8')).toContain(`ARG VERSION=${version}\n`)
  })

  it('have an up-to-date table of values: run `node scripts/chart-docs.mjs` if not', () => {
    expect(readmeWith(read('README.md'), read('values.yaml'))).toBe(read('README.md'))
  })

  it('describe every value', () => {
    const explained = new Set(documentedValues(read('values.yaml')).map(({ key }) => key))
    const leaves = (value: unknown, path: string): string[] =>
      explained.has(path) || value === null || typeof value !== 'object' || Array.isArray(value)
        ? [path]
        : Object.entries(value).flatMap(([key, inner]) => leaves(inner, path === '' ? key : `${path}.${key}`))
    const values = leaves(parse(read('values.yaml')), '')
    expect(values.length).toBeGreaterThan(40)
    expect(values.filter(path => !explained.has(path))).toEqual([])
  })
})
