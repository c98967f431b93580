/** The cost of a decode step that union learns from streams over real sockets. */
import { afterEach, describe, expect, it } from 'vitest'
import { readSamples } from '../../src/cluster/metrics-text.ts'
import type { Pulse } from '../../src/gateway/observe/insight/wire.ts'
import { EventReader } from '../../dashboard/server-events.ts'
import { type FakeWorker, startFakeWorker } from '../fake-worker/index.ts'
import { type Cluster, startCluster } from './cluster.ts'
import { eventually } from './watching.ts'

let cluster: Cluster
let workers: FakeWorker[] = []
afterEach(async () => {
  await cluster.stop()
  await Promise.all(workers.map(worker => worker.close()))
})

/** Two decode workers, the second of which takes four times as long for a token. */
async function start(routing: Record<string, unknown>): Promise<void> {
  workers = await Promise.all([8, 32].map(gapMs => startFakeWorker({ role: 'decode', gapMs })))
  const decode = workers.map(({ url }, n) => ({ url, id: n === 0 ? 'fast' : 'slow' }))
  cluster = await startCluster({ prefill: 1, decode: 0, config: { routing, workers: { decode } } })
  const { registry } = cluster.gateway.context
  await eventually(
    () => registry.candidates('decode', performance.now()).length === 2,
    () => 'both decode workers are ready',
  )
}

async function streams(count: number, body: object = {}): Promise<void> {
  const asked = { prompt: 'abcdefgh', max_tokens: 10, stream: true, ...body }
  let left = count
  await Promise.all(
    Array.from({ length: 6 }, async () => {
      while (left-- > 0) await (await cluster.post('/v1/completions', asked)).text()
    }),
  )
  await cluster.idle()
}

async function metric(name: string): Promise<Record<string, number>> {
  const text = await (await fetch(`${cluster.url}/metrics`)).text()
  return Object.fromEntries(
    readSamples(text, new Set([name])).map(({ labels, value }) => [labels['worker'], value]),
  )
}

async function pulse(): Promise<Pulse> {
  const stop = new AbortController()
  const response = await fetch(`${cluster.url}/eldr/pulse`, { signal: stop.signal })
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  const events = new EventReader()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) throw new Error('the stream ended without a pulse')
    const found = events.push(value).find(({ event }) => event === 'pulse')
    if (found === undefined) continue
    stop.abort()
    return JSON.parse(found.data) as Pulse
  }
}

describe('the cost of a step', () => {
  it('is learnt from streams, for each worker, and shown in metrics and on the dashboard', async () => {
    await start({ policy: 'union' })
    expect(await metric('eldr_step_cost_base_seconds')).toEqual({})
    await streams(60)
    const [base, perExpert, perRequest, ratio, counted] = await Promise.all(
      ['base_seconds', 'per_expert_seconds', 'per_request_seconds', 'speed_ratio', 'streams'].map(part =>
        metric(`eldr_step_cost_${part}`),
      ),
    )
    // The first 15 set the level.
    expect(counted!['fast']! + counted!['slow']!).toBe(60 - 15)
    for (const cost of [base!, perExpert!, perRequest!]) {
      expect(cost['fast']).toBeGreaterThan(0)
      expect(cost['slow']).toBeGreaterThan(cost['fast']!)
    }
    // The proportion of the parts is that of the cluster, so the ratio of workers is the same for each part.
    for (const cost of [base!, perExpert!, perRequest!])
      expect(cost['slow']! / cost['fast']!).toBeCloseTo(ratio!['slow']! / ratio!['fast']!, 6)
    expect(ratio!['fast']).toBeLessThan(1)
    expect(ratio!['slow']).toBeGreaterThan(1)
    // A step takes its base and more: 8 ms on the fast worker, and later if the machine is busy.
    expect(base!['fast']).toBeGreaterThan(0.000_5)
    expect(base!['slow']).toBeLessThan(0.1)
    const { workers: live } = await pulse()
    const [fast, prefill] = ['fast', 'prefill'].map(name =>
      live.find(({ id, role }) => name === id || name === role),
    )
    expect(fast!.stepCost!.baseMs).toBeCloseTo(1000 * base!['fast']!, 6)
    expect(fast!.stepCost!.streams).toBe(counted!['fast'])
    expect(prefill!.stepCost).toBeUndefined()
  })

  it('outlives a change of the policy, and is forgotten with its worker', async () => {
    await start({ policy: 'union' })
    await streams(40)
    const before = await metric('eldr_step_cost_streams')
    const { control } = cluster.gateway
    const { registry } = cluster.gateway.context
    control.setPolicy({ policy: 'jsq' })
    await streams(6)
    control.setPolicy({ policy: 'union' })
    expect(await metric('eldr_step_cost_streams')).toEqual(before)
    const { spec } = registry.views(performance.now()).find(view => view.spec.id === 'slow')!
    registry.remove('slow')
    registry.add(spec)
    expect(Object.keys(await metric('eldr_step_cost_streams'))).toEqual(['fast'])
  })

  it('is not learnt from short or whole responses, nor if it is fixed', async () => {
    await start({ policy: 'union' })
    await streams(20, { max_tokens: 4 })
    await streams(20, { stream: false })
    expect(await metric('eldr_step_cost_streams')).toEqual({})
    await cluster.stop()
    await Promise.all(workers.map(worker => worker.close()))
    await start({ policy: 'union', stepCost: 'fixed' })
    await streams(30)
    expect(await metric('eldr_step_cost_streams')).toEqual({})
  })
})
