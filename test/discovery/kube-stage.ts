/** A fake API, pods and a gateway that follows them, for the tests of one file. */
import { afterAll, afterEach, beforeAll } from 'vitest'
import { temporaryFolder } from '../trace-support.ts'
import { type FakeEndpoint, FakeKube } from './fake-kube.ts'
import { type Discovering, type Pods, startDiscovering, startPods } from './support.ts'

const PREFILL = { app: 'vllm', role: 'prefill' }
export const DECODE = { app: 'vllm', role: 'decode' }

export interface KubeStage {
  readonly folder: string
  readonly pods: Pods
  kube: FakeKube
  current: Discovering | undefined
}

/** The n-th decode pod. */
export const pod = (n: number, more: Partial<FakeEndpoint> = {}): FakeEndpoint => ({
  pod: `decode-${n}`,
  address: `127.0.0.${n + 2}`,
  ...more,
})
export const ask = ({ post }: Discovering) => post({ prompt: 'a', max_tokens: 3 })

export function kubeStage() {
  const folder = temporaryFolder()
  const on = { folder: folder.path } as { -readonly [key in keyof KubeStage]: KubeStage[key] }
  beforeAll(async () => void (on.pods = await startPods(3)))
  afterAll(async () => {
    await on.pods.close()
    folder.remove()
  })
  afterEach(async () => {
    await on.current?.gateway.stop()
    on.current = undefined
    await on.kube?.close()
  })
  const putPrefill = () =>
    on.kube.put({
      name: 'prefill-abc',
      labels: PREFILL,
      port: on.pods.port,
      endpoints: [{ pod: 'prefill-0', address: '127.0.0.1' }],
    })
  const putDecode = (...endpoints: FakeEndpoint[]) =>
    on.kube.put({ name: 'decode-abc', labels: DECODE, port: on.pods.port, endpoints })

  /** With a prefill pod and these decode pods, all discovered. */
  async function start(
    endpoints: FakeEndpoint[] = [pod(0), pod(1)],
    more: object = {},
    config: object = {},
  ): Promise<Discovering> {
    on.kube = await FakeKube.start()
    putPrefill()
    putDecode(...endpoints)
    const settings = {
      enabled: true,
      prefillSelector: ['app=vllm', 'role=prefill'],
      decodeSelector: ['app=vllm', 'role=decode'],
      namespace: 'llm',
      apiUrl: `http://127.0.0.1:${on.kube.port}`,
      ...more,
    }
    on.current = await startDiscovering({ kubernetes: settings }, config)
    const { until, states } = on.current
    const ready =
      endpoints.filter(({ ready = true, terminating = false }) => ready && !terminating).length + 1
    await until(() => Object.values(states()).filter(state => state === 'ready').length === ready)
    await on.kube.watched(2)
    return on.current
  }
  return { on, putPrefill, putDecode, start }
}
