/**
 * Discovery as an operator runs it: `eldr serve` with the flags of other routers, and embedded workers as
 * pods, all as processes.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { readSamples } from '../../src/cluster/metrics-text.ts'
import {
  killAll,
  leftovers,
  polled,
  type RunningProcess,
  startGatewayProcess,
  startWorkerProcess,
  type WorkerProcess,
} from '../worker/processes.ts'
import { FakeKube } from './fake-kube.ts'
import { eventsOf } from './support.ts'

let kube: FakeKube
let gateway: RunningProcess
let prefill: WorkerProcess
let decodes: WorkerProcess[]
beforeAll(async () => {
  kube = await FakeKube.start()
  const worker = (role: string) => startWorkerProcess('--role', role, '--speed', '4', '--lease-ms', '5000')
  ;[prefill, ...decodes] = await Promise.all([worker('prefill'), worker('decode'), worker('decode')])
})
afterEach(() => gateway?.stop())
afterAll(async () => {
  await killAll()
  await kube.close()
})

/** Workers share an address here, so that each needs a slice with a port of its own. */
function put(
  role: 'prefill' | 'decode',
  name: string,
  { url }: RunningProcess,
  conditions: object = {},
): void {
  kube.put({
    name,
    labels: { app: 'vllm', role },
    port: Number(new URL(url).port),
    endpoints: [{ address: '127.0.0.1', pod: name, ...conditions }],
  })
}
const states = async () => {
  const { workers } = (await (await fetch(`${gateway.url}/eldr/workers`)).json()) as {
    workers: { id: string; state: string }[]
  }
  return Object.fromEntries(workers.map(({ id, state }) => [id, state]))
}
const untilStates = (wanted: Record<string, string>) =>
  polled(
    states,
    found =>
      JSON.stringify(Object.entries(found).toSorted()) === JSON.stringify(Object.entries(wanted).toSorted()),
    JSON.stringify(wanted),
  )

describe('embedded workers as pods', () => {
  it('are discovered, serve requests, terminate while they stream, and leave nothing behind', async () => {
    put('prefill', 'prefill-0', prefill)
    put('decode', 'decode-0', decodes[0]!)
    const flags = [
      '--service-discovery',
      '--prefill-selector',
      'app=vllm',
      'role=prefill',
      '--decode-selector',
      'app=vllm',
      'role=decode',
      '--service-discovery-namespace',
      'llm',
      '--service-discovery-api-url',
      `http://127.0.0.1:${kube.port}`,
    ]
    gateway = await startGatewayProcess([...flags, '--policy', 'jsq'])
    await untilStates({ 'prefill-0': 'ready', 'decode-0': 'ready' })
    const stream = await gateway.post('/v1/completions', {
      prompt: 'Once upon a time',
      max_tokens: 200,
      stream: true,
      ignore_eos: true,
    })
    expect(stream.status).toBe(200)
    put('decode', 'decode-1', decodes[1]!)
    put('decode', 'decode-0', decodes[0]!, { ready: false, serving: true, terminating: true })
    await polled(
      states,
      found => found['decode-0'] === 'draining' && found['decode-1'] === 'ready',
      'one drains, one is ready',
    )
    const next = await gateway.post('/v1/completions', { prompt: 'Another', max_tokens: 4, stream: true })
    expect((await eventsOf(next)).at(-1)).toBe('[DONE]')
    expect(await decodes[1]!.metric('vllm:request_success_total')).toBeGreaterThan(0)
    expect((await eventsOf(stream)).at(-1)).toBe('[DONE]')
    const text = await (await fetch(`${gateway.url}/metrics`)).text()
    for (const { value } of readSamples(text, new Set(['eldr_worker_inflight', 'eldr_ticket_leaks_total'])))
      expect(value).toBe(0)
    expect(await leftovers(prefill, ...decodes)).toEqual([])
  })
})
