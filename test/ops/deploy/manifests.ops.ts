import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { gatewayIn, problemsOfSettings, settingsOf } from './gateway-config.ts'
import { objectsIn, ofKind } from './objects.ts'
import { problemsOfPods } from './pods.ts'
import { problemsOfReferences } from './references.ts'
import { canKustomize, kubeconform, kustomized, NAMESPACE, RENDERINGS } from './renderings.ts'
import { ROOT, run, TOOLS } from './tools.ts'

const OWN_SCHEMAS = join(ROOT, 'test', 'ops', 'deploy', 'schemas')
const FILE = '{{ .ResourceKind }}{{ .KindSuffix }}.json'

/** What kubeconform has against manifests, each field that it does not know included. */
async function invalid(text: string, version: string): Promise<string[]> {
  const places = [join(TOOLS, 'schemas', version), OWN_SCHEMAS].flatMap(folder => ['-schema-location', join(folder, FILE)])
  const { stdout } = await run(kubeconform!, ['-strict', '-output', 'json', '-verbose', ...places, '-'], { input: text })
  const { resources } = JSON.parse(stdout) as { resources: { kind: string; name: string; status: string; msg: string }[] }
  expect(resources.length).toBeGreaterThanOrEqual(objectsIn(text).length)
  return resources.filter(({ status }) => status !== 'statusValid').map(({ kind, name, msg }) => `${kind} ${name}: ${msg}`)
}

describe.runIf(kubeconform !== undefined)('everything that a user might apply', () => {
  it('is what Kubernetes takes, from 1.30 to 1.37', async () => {
    const texts = await Promise.all(RENDERINGS.filter(([, here]) => here).map(([, , render]) => render()))
    expect(texts.length).toBeGreaterThan(0)
    const versions = readdirSync(join(TOOLS, 'schemas'))
    expect(versions).toEqual(['1.30.0', '1.37.0'])
    for (const version of versions) expect(await invalid(texts.join('\n---\n'), version), version).toEqual([])
  })
})

describe.each(RENDERINGS)('%s', (_, here, render) => {
  it.runIf(here)('has hardened pods with resources, whose probes ask for routes and ports that there are', async () => {
    const objects = objectsIn(await render())
    expect(gatewayIn(objects).spec.template.spec.containers).toHaveLength(1)
    expect(problemsOfPods(objects)).toEqual([])
  })

  it.runIf(here)('has selectors, names and ports that lead somewhere', async () => {
    expect(problemsOfReferences(objectsIn(await render()))).toEqual([])
  })

  it.runIf(here)('has a configuration that the gateway takes, and that fits its pods and workers', async () => {
    const objects = objectsIn(await render())
    const settings = await settingsOf(objects)
    expect(settings.workers.prefill.length).toBeGreaterThan(0)
    expect(settings.workers.decode.length).toBeGreaterThan(0)
    expect(problemsOfSettings(settings, objects, NAMESPACE)).toEqual([])
  })
})

describe.runIf(canKustomize)('the plain manifests', () => {
  it('can be applied folder by folder, and no placeholder of a secret goes with them', async () => {
    const whole = objectsIn(await kustomized('.'))
    const parts = await Promise.all(['gateway', 'workers', 'monitoring'].map(async folder => objectsIn(await kustomized(folder))))
    const names = (objects: typeof whole) => objects.map(({ kind, metadata }) => `${kind} ${metadata.name}`).toSorted()
    expect(names(parts.flat())).toEqual(names(whole))
    expect(ofKind(whole, 'Secret')).toEqual([])
    expect(whole.filter(({ kind, metadata }) => kind !== 'Namespace' && metadata.namespace !== NAMESPACE)).toEqual([])
  })
})

describe('these checks', () => {
  it.runIf(canKustomize && kubeconform !== undefined)('notice what is wrong', async () => {
    const text = await kustomized('.')
    const without = (from: string, to: string) => {
      expect(text).toContain(from)
      return text.replaceAll(from, to)
    }
    expect(await invalid(without('readOnlyRootFilesystem: true', 'readOnlyRootFileSystem: true'), '1.30.0')).not.toEqual([])
    expect(await invalid(without('port: metrics', 'ports: metrics'), '1.37.0')).not.toEqual([])
    expect(problemsOfPods(objectsIn(without('path: /ready', 'path: /readyz')))).toEqual(['eldr: gateway: readiness probe asks /readyz, which is no route']) // prettier-ignore
    expect(problemsOfPods(objectsIn(without('- ALL', '- KILL')))).toHaveLength(3)
    expect(problemsOfReferences(objectsIn(without('targetPort: metrics', 'targetPort: metric')))).toEqual(['Service eldr: port metrics leads to none of eldr']) // prettier-ignore
    const late = objectsIn(without('terminationGracePeriodSeconds: 80', 'terminationGracePeriodSeconds: 65'))
    expect(problemsOfSettings(await settingsOf(late), late, NAMESPACE)).toEqual(['is killed while streams may still go on'])
    const fewer = objectsIn(without('replicas: 2', 'replicas: 1'))
    expect(problemsOfSettings(await settingsOf(fewer), fewer, NAMESPACE)).toHaveLength(1)
    await expect(settingsOf(objectsIn(without('policy: union', 'policy: onion')))).rejects.toThrow(/routing\.policy/)
  })
})
