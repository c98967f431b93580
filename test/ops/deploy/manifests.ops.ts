import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { problemsOfDiscovery } from './discovery.ts'
import { gatewayIn, problemsOfSettings, settingsOf } from './gateway-config.ts'
import { objectsIn, ofKind } from './objects.ts'
import { problemsOfPods } from './pods.ts'
import { problemsOfReferences } from './references.ts'
import { canKustomize, DISCOVERING, kubeconform, kustomized, NAMESPACE, RENDERINGS } from './renderings.ts'
import { problemsOfRoles } from './roles.ts'
import { ROOT, run, TOOLS } from './tools.ts'

const OWN_SCHEMAS = join(ROOT, 'test', 'ops', 'deploy', 'schemas')
const FILE = '{{ .ResourceKind }}{{ .KindSuffix }}.json'

/** What kubeconform has against manifests, each field that it does not know included. */
async function invalid(text: string, version: string): Promise<string[]> {
  const places = [join(TOOLS, 'schemas', version), OWN_SCHEMAS].flatMap(folder => [
    '-schema-location',
    join(folder, FILE),
  ])
  const { stdout } = await run(kubeconform!, ['-strict', '-output', 'json', '-verbose', ...places, '-'], {
    input: text,
  })
  const { resources } = JSON.parse(stdout) as {
    resources: { kind: string; name: string; status: string; msg: string }[]
  }
  expect(resources.length).toBeGreaterThanOrEqual(objectsIn(text).length)
  return resources
    .filter(({ status }) => status !== 'statusValid')
    .map(({ kind, name, msg }) => `${kind} ${name}: ${msg}`)
}

describe.runIf(kubeconform !== undefined)('every manifest that a user might apply', () => {
  it('is valid for Kubernetes 1.30 to 1.37', async () => {
    const texts = await Promise.all(RENDERINGS.filter(([, here]) => here).map(([, , render]) => render()))
    expect(texts.length).toBeGreaterThan(0)
    const versions = readdirSync(join(TOOLS, 'schemas'))
    expect(versions).toEqual(['1.30.0', '1.37.0'])
    for (const version of versions) expect(await invalid(texts.join('\n---\n'), version), version).toEqual([])
  })
})

describe.each(RENDERINGS)('%s', (name, here, render) => {
  it.runIf(here)('has hardened pods with resources, and probes of existing routes and ports', async () => {
    const objects = objectsIn(await render())
    expect(gatewayIn(objects).spec.template.spec.containers).toHaveLength(1)
    expect(problemsOfPods(objects)).toEqual([])
  })

  it.runIf(here)('has selectors, names and ports that resolve', async () => {
    expect(problemsOfReferences(objectsIn(await render()))).toEqual([])
  })

  it.runIf(here)(
    'has a configuration that the gateway accepts and that matches its pods and workers',
    async () => {
      const objects = objectsIn(await render())
      const settings = await settingsOf(objects)
      const isDiscovering = DISCOVERING.has(name)
      expect(settings.discovery.kubernetes?.enabled ?? false).toBe(isDiscovering)
      expect(settings.workers.prefill.length > 0).toBe(!isDiscovering)
      expect(settings.workers.decode.length > 0).toBe(!isDiscovering)
      expect(problemsOfSettings(settings, objects, NAMESPACE)).toEqual([])
      expect(problemsOfDiscovery(settings, objects, NAMESPACE)).toEqual([])
    },
  )

  it.runIf(here)(
    'gives access to the Kubernetes API only to the gateway with discovery, for slices alone',
    async () => {
      const objects = objectsIn(await render())
      expect(ofKind(objects, 'Role', 'RoleBinding')).toHaveLength(DISCOVERING.has(name) ? 2 : 0)
      expect(problemsOfRoles(objects, NAMESPACE)).toEqual([])
    },
  )
})

describe.runIf(canKustomize)('the plain manifests', () => {
  it('can be applied folder by folder, without a placeholder secret', async () => {
    const whole = objectsIn(await kustomized('.'))
    const parts = await Promise.all(
      ['gateway', 'workers', 'monitoring'].map(async folder => objectsIn(await kustomized(folder))),
    )
    const names = (objects: typeof whole) =>
      objects.map(({ kind, metadata }) => `${kind} ${metadata.name}`).toSorted()
    expect(names(parts.flat())).toEqual(names(whole))
    expect(ofKind(whole, 'Secret')).toEqual([])
    expect(
      whole.filter(({ kind, metadata }) => kind !== 'Namespace' && metadata.namespace !== NAMESPACE),
    ).toEqual([])
  })
})

describe('these checks', () => {
  it.runIf(canKustomize && kubeconform !== undefined)('detect mistakes', async () => {
    const text = await kustomized('.')
    const without = (from: string, to: string) => {
      expect(text).toContain(from)
      return text.replaceAll(from, to)
    }
    expect(
      await invalid(without('readOnlyRootFilesystem: true', 'readOnlyRootFileSystem: true'), '1.30.0'),
    ).not.toEqual([])
    expect(await invalid(without('port: metrics', 'ports: metrics'), '1.37.0')).not.toEqual([])
    expect(problemsOfPods(objectsIn(without('path: /ready', 'path: /readyz')))).toEqual([
      'eldr: gateway: readiness probe asks /readyz, which is no route',
    ])
    expect(problemsOfPods(objectsIn(without('- ALL', '- KILL')))).toHaveLength(3)
    expect(problemsOfReferences(objectsIn(without('targetPort: metrics', 'targetPort: metric')))).toEqual([
      'Service eldr: port metrics leads to none of eldr',
    ])
    const late = objectsIn(without('terminationGracePeriodSeconds: 80', 'terminationGracePeriodSeconds: 65'))
    expect(problemsOfSettings(await settingsOf(late), late, NAMESPACE)).toEqual([
      'is killed while streams may still go on',
    ])
    const fewer = objectsIn(without('replicas: 2', 'replicas: 1'))
    expect(problemsOfSettings(await settingsOf(fewer), fewer, NAMESPACE)).toHaveLength(1)
    await expect(settingsOf(objectsIn(without('policy: union', 'policy: onion')))).rejects.toThrow(
      /routing\.policy/,
    )
    expect(
      problemsOfReferences(
        objectsIn(without('jobLabel: app.kubernetes.io/name', 'jobLabel: app.kubernetes.io/component')),
      ),
    ).toEqual(['ServiceMonitor eldr: its job is gateway, but alerts ask for eldr'])
  })

  it.runIf(canKustomize)('detect mistakes in discovery', async () => {
    const text = await kustomized('discovery')
    const problems = async (from: RegExp, to: string) => {
      expect(text).toMatch(from)
      const objects = objectsIn(text.replace(from, to))
      return [
        ...problemsOfPods(objects),
        ...problemsOfRoles(objects, NAMESPACE),
        ...problemsOfDiscovery(await settingsOf(objects), objects, NAMESPACE),
      ]
    }
    expect(await problems(/$^/m, '')).toEqual([])
    expect(
      await problems(/automountServiceAccountToken: true/, 'automountServiceAccountToken: false'),
    ).toEqual(['eldr: may ask the API, and has no token'])
    expect(await problems(/- watch\n/, '- watch\n  - get\n')).toEqual([
      'Role eldr-discovery: lets do other things than to list and watch endpointslices',
    ])
    expect(await problems(/kind: Role\n  name: eldr-discovery/, 'kind: Role\n  name: eldr-discover')).toEqual(
      ['Role eldr-discovery: it has no binding', 'RoleBinding eldr-discovery: no Role eldr-discover'],
    )
    expect(
      await problems(/kind: ServiceAccount\n  name: eldr\n/, 'kind: ServiceAccount\n  name: default\n'),
    ).toEqual([
      'eldr: has a token for the API',
      'RoleBinding eldr-discovery: no ServiceAccount default',
      'may not ask the API',
    ])
    expect(await problems(/service-name=eldr-decode/, 'service-name=eldr-decoder')).toEqual([
      'finds no pod for decode, but there are eldr-decode-0, eldr-decode-1',
    ])
    expect(await problems(/namespace: eldr\n        #/, 'namespace: other\n        #')).toEqual([
      'follows the namespace other',
    ])
    expect(await problems(/port: 6443/, 'port: 6444')).toEqual(['the gateway does not reach the API'])
    expect(await problems(/terminationGracePeriodSeconds: 120/, 'terminationGracePeriodSeconds: 61')).toEqual(
      ['eldr-decode is killed while it drains'],
    )
    const named =
      'routing:\n      policy: union\n    workers: { decode: ["http://eldr-decode-0.eldr-decode:8000"] }'
    expect(await problems(/routing:\n      policy: union/, named)).toEqual([
      'is given workers that it finds as well, each then twice',
    ])
  })
})
