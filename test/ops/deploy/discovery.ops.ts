/**
 * A gateway with the configuration of the manifests, before an API that has the slices which Kubernetes would
 * make of their services.
 */
import { afterEach, describe, expect, it } from 'vitest'
import { FakeKube } from '../../discovery/fake-kube.ts'
import { type Discovering, type Pods, startDiscovering, startPods } from '../../discovery/support.ts'
import { slicesIn } from './discovery.ts'
import { settingsOf } from './gateway-config.ts'
import { objectsIn } from './objects.ts'
import { DISCOVERING, NAMESPACE, RENDERINGS } from './renderings.ts'

const running: { kube?: FakeKube; pods?: Pods; gateway?: Discovering } = {}
afterEach(async () => {
  await running.gateway?.gateway.stop()
  await running.kube?.close()
  await running.pods?.close()
})

describe.each(RENDERINGS.filter(([name]) => DISCOVERING.has(name)))('%s', (_, here, render) => {
  it.runIf(here)(
    'discovers the workers of the manifests, and follows them when they are scaled',
    async () => {
      const objects = objectsIn(await render())
      const { kubernetes } = (await settingsOf(objects)).discovery
      const pods = (running.pods = await startPods(3))
      const kube = (running.kube = await FakeKube.start())
      const slices = slicesIn(objects, NAMESPACE)
      const decode = slices.find(({ name }) => name.startsWith('eldr-decode-'))!
      // Stand-ins of the pods have addresses of this machine, and another port.
      const put = (slice: typeof decode, first: number, count: number) =>
        kube.put({
          ...slice,
          port: pods.port,
          endpoints: Array.from({ length: count }, (_each, n) => ({
            pod: `${slice.labels['kubernetes.io/service-name']}-${n}`,
            address: `127.0.0.${first + n}`,
          })),
        })
      for (const slice of slices) put(slice, slice === decode ? 2 : 1, slice === decode ? 2 : 1)
      const gateway = (running.gateway = await startDiscovering({
        kubernetes: { ...kubernetes, apiUrl: `http://127.0.0.1:${kube.port}` },
      }))
      await gateway.until(
        () => Object.values(gateway.states()).filter(state => state === 'ready').length === 3,
      )
      expect(gateway.states()).toEqual({
        'eldr-prefill-0': 'ready',
        'eldr-decode-0': 'ready',
        'eldr-decode-1': 'ready',
      })
      expect((await gateway.post({ prompt: 'a', max_tokens: 3 })).status).toBe(200)
      // Paths and verbs are those that the role allows, in the namespace that it holds in.
      expect(new Set(kube.requests.map(({ path }) => path))).toEqual(
        new Set([`/apis/discovery.k8s.io/v1/namespaces/${NAMESPACE}/endpointslices`]),
      )
      await kube.watched(2)
      put(decode, 2, 3)
      await gateway.until(() => gateway.states()['eldr-decode-2'] === 'ready')
      put(decode, 2, 1)
      await gateway.until(() => Object.keys(gateway.states()).length === 2)
      expect(gateway.states()).toEqual({ 'eldr-prefill-0': 'ready', 'eldr-decode-0': 'ready' })
    },
  )
})
