/**
 * Two gateways with two processes each: the owner uses the store, and a new owner is the same replica to the
 * others.
 */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readSamples } from '../../../src/cluster/metrics-text.ts'
import { RENEWALS } from '../../../src/gateway/scale/replicas/publisher.ts'
import { type FakeWorker, startFakeWorker } from '../../fake-worker/index.ts'
import { call, smallArtifact } from '../../gateway/admin-support.ts'
import { SHAPE } from '../../gateway/cluster.ts'
import { type ProcessCluster, startProcessCluster } from '../../gateway/process-cluster.ts'
import { metricIn } from '../../gateway/watching.ts'
import { temporaryFolder } from '../../trace-support.ts'
import { killAll } from '../../worker/processes.ts'
import { until } from './gateways.ts'
import { type Store, startStore } from './store.ts'

/** A machine that is held up for a moment still renews it in time. */
const LEASE_MS = 6_000
let store: Store
let workers: FakeWorker[]
let gateways: [ProcessCluster, ProcessCluster]
beforeAll(async () => {
  store = await startStore()
  const prefill = await startFakeWorker({ role: 'prefill', counts: SHAPE })
  const decodes = await Promise.all(
    [0, 1].map(() => startFakeWorker({ role: 'decode', prefills: [prefill], gapMs: 5 })),
  )
  workers = [prefill, ...decodes]
  const start = (more: object) =>
    startProcessCluster({
      prefill: 0,
      decode: 0,
      ready: async url => (await fetch(`${url}/ready`)).status === 200,
      config: {
        workers: {
          prefill: [{ url: prefill.url, id: 'p' }],
          decode: decodes.map(({ url }, n) => ({ url, id: `d${n}` })),
        },
        routing: { policy: 'union' },
        replicas: { url: store.url, leaseMs: LEASE_MS, timeoutMs: 1_000, retryMs: 20, ...more },
      },
    })
  // One has a random id, the other a configured one.
  gateways = [await start({}), await start({ id: 'second' })]
  await until('them to see each other', async () =>
    (await Promise.all(gateways.map(count))).every(replicas => replicas === 2),
  )
})
afterAll(async () => {
  await Promise.all(gateways.map(gateway => gateway.stop()))
  await killAll()
  await Promise.all(workers.map(worker => worker.close()))
  await store.close()
})

const count = async ({ get }: ProcessCluster) =>
  (await get<{ replicas: { replicas: number } }>('/ready')).replicas?.replicas
async function sum({ url }: ProcessCluster, ...names: string[]): Promise<number> {
  const samples = readSamples(
    await (await fetch(`${url}/metrics`, { headers: { connection: 'close' } })).text(),
    new Set(names),
  )
  return samples.reduce((total, { value }) => total + value, 0)
}
const elsewhere = (gateway: ProcessCluster) => sum(gateway, 'eldr_worker_inflight_elsewhere')
/** Messages that the present owner has sent to the other gateway. */
async function sent({ url }: ProcessCluster): Promise<number> {
  const text = await (await fetch(`${url}/metrics`, { headers: { connection: 'close' } })).text()
  return metricIn(text, 'eldr_replica_messages_total', { direction: 'out' })
}
/** Tokens of a stream that runs until it is aborted. */
const ENDLESS = 1_000_000
const ask = ({ post }: ProcessCluster, maxTokens: number, signal?: AbortSignal) =>
  post(
    '/v1/completions',
    { prompt: 'Once', stream: true, max_tokens: maxTokens },
    { headers: { connection: 'close' }, signal: signal ?? null },
  )
async function replaceOwner(gateway: ProcessCluster): Promise<void> {
  const pid = gateway.pidOf('owner')
  process.kill(pid, 'SIGKILL')
  await gateway.replaced('owner', pid)
}
const zero = () =>
  until('views that are zero', async () =>
    (
      await Promise.all(
        gateways.map(each => sum(each, 'eldr_worker_inflight', 'eldr_worker_inflight_elsewhere')),
      )
    ).every(total => total === 0),
  )

describe.each([0, 1])('a killed owner of gateway %i', which => {
  it('with streams remains one replica with the same load to the other gateway', async () => {
    const [hit, other] = which === 0 ? gateways : gateways.toReversed()
    const stop = new AbortController()
    const streams = await Promise.all(Array.from({ length: 5 }, () => ask(hit!, ENDLESS, stop.signal)))
    await until('the other to see them', async () => (await elsewhere(other!)) === 5)
    const seen: [replicas: number, load: number][] = []
    const enough = new AbortController()
    const watch = (async () => {
      while (!enough.signal.aborted) seen.push([await count(other!), await elsewhere(other!)])
    })()
    await replaceOwner(hit!)
    await until('the new one to see the other', async () => (await count(hit!)) === 2)
    // More messages than renewals fit into a lease: the lease of the killed owner has ended.
    const renewed = (await sent(hit!)) + RENEWALS + 1
    await until('the new one to renew its lease', async () => (await sent(hit!)) >= renewed)
    enough.abort()
    await watch
    expect(Math.max(...seen.map(([replicas]) => replicas))).toBe(2)
    expect(Math.max(...seen.map(([, load]) => load))).toBe(5)
    expect(seen.at(-1)).toEqual([2, 5])
    stop.abort()
    for (const response of streams) await expect(response.text()).rejects.toThrow(/aborted/)
    await zero()
  })

  it('under traffic to both loses no request, and views agree and are zero at the end', async () => {
    const bad: string[] = []
    let sent = 0
    const enough = new AbortController()
    const lane = async (gateway: ProcessCluster) => {
      while (!enough.signal.aborted) {
        sent++
        const text = await ask(gateway, 4).then(
          async response => `${response.status} ${await response.text()}`,
          String,
        )
        if (!text.startsWith('200') || !text.includes('[DONE]')) bad.push(text.slice(0, 300))
      }
    }
    const lanes = gateways.flatMap(gateway => [lane(gateway), lane(gateway), lane(gateway), lane(gateway)])
    await until('some of it', () => sent > 40)
    await replaceOwner(gateways[which]!)
    const then = sent
    await until('more of it', () => sent > then + 40)
    enough.abort()
    await Promise.all(lanes)
    expect(bad).toEqual([])
    await zero()
    for (const gateway of gateways)
      expect(
        await sum(
          gateway,
          'eldr_ticket_leaks_total',
          'eldr_ticket_double_releases_total',
          'eldr_replica_ignored_total',
        ),
      ).toBe(0)
  })
})

describe('an artifact uploaded to one gateway', () => {
  it('is still on the other one after its owner is killed', async () => {
    const folder = temporaryFolder()
    const { path } = await smallArtifact(folder.path, 2)
    const [first, second] = gateways
    expect((await call(first, 'POST', '/eldr/artifact', readFileSync(path))).status).toBe(200)
    expect((await call(first, 'PUT', '/eldr/policy', { policy: 'eldr' })).status).toBe(200)
    folder.remove()
    const routing = async () =>
      (await second.get<{ routing: { policy: string; artifact?: { sha256: string } } }>('/eldr/config'))
        .routing
    await until(
      'the other to have it',
      async () => (await routing()).policy === 'eldr' && (await routing()).artifact !== undefined,
    )
    const before = await routing()
    await replaceOwner(second)
    expect((await routing()).artifact?.sha256).toBe(before.artifact!.sha256)
    expect((await routing()).policy).toBe('eldr')
    expect(await (await ask(second, 3)).text()).toContain('[DONE]')
  })

  it('returns to a store that restarts empty, even if no owner is left that read its bytes', async () => {
    for (const gateway of gateways) await replaceOwner(gateway)
    await store.kill()
    await store.start()
    await until('its bytes in the store', async () => {
      const keys = await store.ask('KEYS', 'eldr:artifact:*')
      return Array.isArray(keys) && keys.length === 1
    })
    expect(await store.ask('EXISTS', 'eldr:changes')).toBe(1)
  })
})

describe('a change that waits for the store', () => {
  it('is not lost with its owner', async () => {
    const [first, second] = gateways
    const policyOf = async ({ get }: ProcessCluster) =>
      (await get<{ routing: { policy: string } }>('/eldr/config')).routing.policy
    store.hang()
    expect((await call(first, 'PUT', '/eldr/policy', { policy: 'round_robin' })).status).toBe(200)
    await replaceOwner(first)
    expect(await policyOf(first)).toBe('round_robin')
    store.goOn()
    await until('it on the other gateway', async () => (await policyOf(second)) === 'round_robin')
    expect(await policyOf(first)).toBe('round_robin')
  })
})
