/** Data-parallel ranks: engines behind one URL, each a worker of its own. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { readSamples } from '../../src/cluster/metrics-text.ts'
import {
  type FakeWorker,
  type FakeWorkerOptions,
  type ReceivedRequest,
  startFakeWorker,
} from '../fake-worker/index.ts'
import { temporaryFolder } from '../trace-support.ts'
import { call, errorOf, smallArtifact, until } from './admin-support.ts'
import { type Cluster, type ClusterOptions, eventsOf, SHAPE, startCluster } from './cluster.ts'

const folder = temporaryFolder()
let artifact = ''
beforeAll(async () => void (artifact = (await smallArtifact(folder.path, 3)).path))
afterAll(() => folder.remove())

let cluster: Cluster
const more: FakeWorker[] = []
afterEach(async () => {
  await cluster.stop()
  await Promise.all(more.splice(0).map(worker => worker.close()))
})

const ROUND = { policy: 'round_robin', prefillPolicy: 'round_robin' }

/** One prefill server of two ranks and one decode server of three. */
async function start({ config = {}, ...options }: ClusterOptions = {}): Promise<void> {
  cluster = await startCluster({
    prefill: 1,
    decode: 1,
    ...options,
    prefillOptions: { ranks: 2, ...options.prefillOptions },
    decodeOptions: { ranks: 3, ...options.decodeOptions },
    config: { routing: ROUND, ...config, workers: { prefillRanks: 2, decodeRanks: 3, ...config.workers } },
  })
}
async function another(options: FakeWorkerOptions): Promise<FakeWorker> {
  const worker = await startFakeWorker(options)
  more.push(worker)
  return worker
}
const ask = (body: object = {}, headers: Record<string, string> = {}) =>
  cluster.post('/v1/completions', { prompt: 'a b c d', max_tokens: 4, ...body }, { headers })
async function answered(
  count: number,
  body: object = {},
  headers: Record<string, string> = {},
): Promise<void> {
  for (let n = 0; n < count; n++) {
    const response = await ask(body, headers)
    await response.text()
    expect(response.status).toBe(200)
  }
}
const idOf = ({ url }: FakeWorker, dpRank: number) => `${new URL(url).host}@${dpRank}`
const legs = (worker: FakeWorker, leg: 'prefill' | 'decode') => worker.ranks.map(counts => counts[leg])
const views = () => cluster.gateway.context.registry.views(performance.now())
const viewOf = (id: string) => views().find(({ spec }) => spec.id === id)!
const onRank = (dpRank: number) => ({
  match: (request: ReceivedRequest) => request.isGeneration && request.dpRank === dpRank,
})
const samples = async (name: string) =>
  readSamples(await (await fetch(`${cluster.url}/metrics`)).text(), new Set([name]))

/** A held stream on each decode rank. */
async function heldStreams(count: number) {
  let release = () => {}
  const held = new Promise<void>(resolve => (release = resolve))
  for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'tokens', tokens: 2, until: held })
  const responses = await Promise.all(
    Array.from({ length: count }, () => ask({ stream: true, max_tokens: 6 })),
  )
  for (const decode of cluster.decodes) decode.clearFaults()
  return { release, events: () => Promise.all(responses.map(eventsOf)) }
}

describe('the rank of a worker', () => {
  it('is sent on both legs, and the client’s header is ignored', async () => {
    await start()
    const [prefill, decode] = [cluster.prefills[0]!, cluster.decodes[0]!]
    await answered(3, {}, { 'x-data-parallel-rank': '77' })
    await answered(3, { stream: true }, { 'X-Data-Parallel-Rank': '0' })
    expect(legs(prefill, 'prefill')).toEqual([3, 3])
    expect(legs(decode, 'decode')).toEqual([2, 2, 2])
    const sent = [...prefill.requests, ...decode.requests].filter(({ isGeneration }) => isGeneration)
    expect(sent.map(({ headers }) => headers['x-data-parallel-rank'])).not.toContain(undefined)
    // By one worker alone: of one token, and of one that must not be handed over.
    await answered(1, { max_tokens: 1 })
    expect(legs(prefill, 'decode')).toEqual([1, 0])
    await answered(2, { n: 2 })
    expect(legs(prefill, 'prefill').reduce((a, b) => a + b)).toBe(10)
    await cluster.idle()
  })

  it('is sent with passed-through requests', async () => {
    await start()
    const decode = cluster.decodes[0]!
    for (let n = 0; n < 3; n++) expect((await fetch(`${cluster.url}/v1/models`)).status).toBe(200)
    const passed = decode.requests.filter(({ path }) => path === '/v1/models').map(({ dpRank }) => dpRank)
    expect(passed.toSorted()).toEqual([0, 1, 2])
    expect(
      decode.requests.filter(({ path }) => path === '/health').every(({ dpRank }) => dpRank === undefined),
    ).toBe(true)
  })

  it('is absent for a worker without ranks, also beside others that have them', async () => {
    await start()
    const plain = await another({ role: 'decode', prefills: cluster.prefills })
    await call(cluster, 'POST', '/eldr/workers', { url: plain.url, role: 'decode', id: 'plain' })
    await until(cluster, () => viewOf('plain').state === 'ready')
    await answered(8, {}, { 'x-data-parallel-rank': '1' })
    expect(legs(cluster.decodes[0]!, 'decode')).toEqual([2, 2, 2])
    const sent = plain.requests.filter(({ isGeneration }) => isGeneration)
    expect(sent.map(({ headers }) => headers['x-data-parallel-rank'])).toEqual([undefined, undefined])
    await cluster.idle()
  })

  it('is in the debug headers and in the worker’s id', async () => {
    await start()
    const { headers } = await ask({}, { 'x-eldr-debug': '1' })
    expect(headers.get('x-eldr-prefill-worker')).toBe(idOf(cluster.prefills[0]!, 0))
    expect(headers.get('x-eldr-decode-worker')).toBe(idOf(cluster.decodes[0]!, 0))
  })
})

describe('each rank has its own', () => {
  it('load: only its own requests', async () => {
    await start({ config: { routing: { policy: 'jsq' } } })
    const decode = cluster.decodes[0]!
    const streams = await heldStreams(4)
    const { json } = await call(cluster, 'GET', '/eldr/workers')
    const shown = json.workers.filter(({ role }: { role: string }) => role === 'decode')
    expect(shown).toMatchObject(
      [0, 1, 2].map(dpRank => ({ id: idOf(decode, dpRank), url: decode.url, dpRank, index: dpRank })),
    )
    expect(shown.map(({ inflight }: { inflight: number }) => inflight).toSorted()).toEqual([1, 1, 2])
    expect(shown.map(({ inflight }: { inflight: number }) => inflight)).toEqual(
      decode.ranks.map(({ active }) => active),
    )
    // What the dashboard shows of a batch is that of the rank, from one page of metrics for all.
    const pages = () => decode.requests.filter(({ path }) => path === '/metrics').length
    const before = pages()
    const experts = (await call(cluster, 'GET', '/eldr/experts')).json.workers as { batch: number }[]
    expect(experts.map(({ batch }) => batch)).toEqual(decode.ranks.map(({ active }) => active))
    expect(pages() - before).toBe(1)
    streams.release()
    for (const events of await streams.events()) expect(events.at(-1)).toBe('[DONE]')
    await cluster.idle()
  })

  it('breaker: only the failing rank is excluded', async () => {
    await start({ config: { breaker: { consecutiveFailures: 2 }, retries: { max: 3, budgetShare: 1 } } })
    const decode = cluster.decodes[0]!
    decode.fail({ kind: 'status', status: 503 }, onRank(1))
    await answered(9)
    expect(
      views()
        .filter(({ spec }) => spec.role === 'decode')
        .map(({ breaker }) => breaker),
    ).toEqual(['closed', 'open', 'closed'])
    expect(decode.ranks[1]!.decode).toBe(2)
    expect(viewOf(idOf(decode, 1)).state).toBe('open')
    await cluster.idle()
  })

  it('prefill state: if one rank fails, the other prefills', async () => {
    await start({ config: { breaker: { consecutiveFailures: 2 }, retries: { max: 3, budgetShare: 1 } } })
    const prefill = cluster.prefills[0]!
    prefill.fail({ kind: 'reset', after: 'request' }, onRank(0))
    await answered(6)
    expect(
      views()
        .filter(({ spec }) => spec.role === 'prefill')
        .map(({ breaker }) => breaker),
    ).toEqual(['open', 'closed'])
    await cluster.idle()
  })

  it('drain state: a drained rank gets nothing, the others continue', async () => {
    await start()
    const decode = cluster.decodes[0]!
    for (const path of [encodeURIComponent(idOf(decode, 2)), idOf(decode, 2)]) {
      const before = legs(decode, 'decode')
      expect((await call(cluster, 'POST', `/eldr/workers/${path}/drain`)).json).toMatchObject({
        state: 'draining',
        dpRank: 2,
      })
      await answered(6)
      const after = legs(decode, 'decode')
      expect(after.map((count, dpRank) => count - before[dpRank]!)).toEqual([3, 3, 0])
      expect((await call(cluster, 'POST', `/eldr/workers/${path}/undrain`)).json).toMatchObject({
        state: 'ready',
      })
    }
    await answered(3)
    expect(decode.ranks[2]!.decode).toBe(1)
  })

  it.each(['eldr', 'union'])('cluster: under %s requests go to the rank of their centroid', async policy => {
    await start({
      config: { routing: { policy, artifact, tau: 0 } },
      prefillOptions: { counts: { ...SHAPE, variants: 8 } },
    })
    const decode = cluster.decodes[0]!
    const { json } = await call(cluster, 'GET', '/eldr/workers')
    const clusters = json.workers.flatMap(
      ({ dpRank, cluster: own, role }: { dpRank: number; cluster?: number; role: string }) =>
        role === 'decode' ? [[dpRank, own]] : [],
    )
    expect(clusters).toEqual([
      [0, 0],
      [1, 1],
      [2, 2],
    ])
    // Requests cycle through eight kinds of counts, three times each.
    await answered(24, { prompt: 'x '.repeat(32).trim() })
    const { decisions } = (await call(cluster, 'GET', '/eldr/decisions?limit=24')).json
    const decided = decisions.map(({ worker }: { worker: string }) => Number(worker.split('@')[1]))
    const sent = decode.requests.filter(({ leg }) => leg === 'decode').map(({ dpRank }) => dpRank)
    expect(decided.toReversed()).toEqual(sent)
    expect(new Set(decisions.map((one: { policy: string }) => one.policy))).toEqual(new Set([policy]))
    if (policy !== 'eldr') return
    expect(new Set(sent).size).toBe(3)
    expect(sent.slice(0, 8)).toEqual(sent.slice(8, 16))
    expect(sent.slice(0, 8)).toEqual(sent.slice(16))
  })
})

describe('ranks of one server', () => {
  it('share one health check, and are healthy or unhealthy together', async () => {
    await start({ config: { health: { intervalMs: 20, failures: 1 } } })
    const decode = cluster.decodes[0]!
    const checks = () => decode.requests.filter(({ path }) => path === '/health').length
    await decode.waitFor(() => checks() >= 5)
    const before = checks()
    const counted = (await samples('eldr_health_checks_total')).filter(({ labels }) =>
      labels['worker']?.startsWith(new URL(decode.url).host),
    )
    const ok = counted.filter(({ labels }) => labels['result'] === 'ok').map(({ value }) => value)
    expect(ok).toHaveLength(3)
    // With a check per rank the server would get three times as many. The last check may not be counted yet.
    for (const value of ok) {
      expect(value).toBeGreaterThanOrEqual(before - 1)
      expect(value).toBeLessThanOrEqual(checks())
    }
    const states = () =>
      views()
        .filter(({ spec }) => spec.role === 'decode')
        .map(({ state }) => state)
    await decode.refuse()
    await until(cluster, () => states().every(state => state === 'unhealthy'))
    await decode.accept()
    await until(cluster, () => states().every(state => state === 'ready'))
    await answered(3)
  })

  it('that cannot be reached are all excluded from the retry', async () => {
    await start({
      decode: 2,
      config: { retries: { max: 1, budgetShare: 1 }, health: { intervalMs: 60_000 } },
    })
    const [dead, alive] = cluster.decodes
    await dead!.refuse()
    await answered(1)
    expect(legs(alive!, 'decode').reduce((a, b) => a + b)).toBe(1)
    await cluster.idle()
  })

  it('share connections: removing one rank closes none', async () => {
    await start({ config: { routing: { policy: 'jsq' } } })
    const decode = cluster.decodes[0]!
    const streams = await heldStreams(3)
    const { connections } = decode.counters
    expect((await call(cluster, 'DELETE', `/eldr/workers/${idOf(decode, 1)}`)).json).toMatchObject({
      state: 'leaving',
      dpRank: 1,
    })
    streams.release()
    for (const events of await streams.events()) expect(events.at(-1)).toBe('[DONE]')
    await until(cluster, () => views().every(({ spec }) => spec.id !== idOf(decode, 1)))
    await answered(4)
    expect(decode.counters.connections).toBe(connections)
    expect(decode.ranks[1]!.decode).toBe(1)
    const told = await samples('eldr_worker_connections_total')
    expect(
      told
        .filter(({ labels }) => labels['leg'] === 'decode')
        .map(({ labels, value }) => [labels['worker'], value]),
    ).toEqual([[new URL(decode.url).host, connections]])
    await cluster.idle()
  })

  it('have different engine ids, which are not restarts; a restart counts for every rank', async () => {
    await start({ config: { health: { intervalMs: 20 }, retries: { max: 3, budgetShare: 1 } } })
    const prefill = cluster.prefills[0]!
    const restarts = async () =>
      (await samples('eldr_worker_restarts_total'))
        .filter(({ labels }) => labels['worker']?.startsWith(new URL(prefill.url).host))
        .map(({ value }) => value)
    await answered(6)
    expect(await restarts()).toEqual([0, 0])
    await prefill.restart()
    await until(cluster, () => views().every(({ state }) => state === 'ready'))
    await answered(6)
    expect(await restarts()).toEqual([1, 1])
  })
})

describe('ranks that a server does not have', () => {
  it.each([false, true])('are excluded soon, although they are never busy (stream: %s)', async stream => {
    await start({
      config: {
        routing: { policy: 'jsq', prefillPolicy: 'least_loaded' },
        workers: { prefillRanks: 3, decodeRanks: 4 },
        breaker: { openMs: 600_000 },
      },
    })
    const [prefill, decode] = [cluster.prefills[0]!, cluster.decodes[0]!]
    const missing = [idOf(prefill, 2), idOf(decode, 3)].toSorted()
    // Among idle workers the choice is random: it takes a few requests until a rank has failed often enough.
    while (missing.some(id => viewOf(id).state !== 'open')) await answered(5, { stream })
    for (const id of [idOf(prefill, 0), idOf(decode, 0)]) expect(viewOf(id).state).toBe('ready')
    expect(
      (await samples('eldr_leg_failures_total'))
        .filter(({ value }) => value > 0)
        .map(({ labels, value }) => [labels['worker'], value])
        .toSorted(),
    ).toEqual(missing.map(id => [id, 5]))
    expect(views().reduce((sum, { inflight }) => sum + inflight, 0)).toBe(0)
  })
})

describe('POST /eldr/workers', () => {
  it('accepts a rank, which is ready without another check if its server is known', async () => {
    await start({ decodeOptions: { ranks: 5 }, config: { health: { intervalMs: 60_000 } } })
    const decode = cluster.decodes[0]!
    const checks = () => decode.requests.filter(({ path }) => path === '/health').length
    const before = checks()
    const added = await call(cluster, 'POST', '/eldr/workers', { url: decode.url, role: 'decode', dpRank: 3 })
    expect(added).toMatchObject({ status: 201, json: { id: idOf(decode, 3), url: decode.url, dpRank: 3 } })
    expect(
      (await call(cluster, 'POST', '/eldr/workers', { url: `${decode.url}@4`, role: 'decode', id: 'four' }))
        .json,
    ).toMatchObject({ id: 'four', dpRank: 4 })
    expect(
      (await call(cluster, 'POST', '/eldr/workers', { url: decode.url, role: 'decode', dpRank: 3 })).status,
    ).toBe(200)
    await until(cluster, () => viewOf('four').state === 'ready' && viewOf(idOf(decode, 3)).state === 'ready')
    expect(checks()).toBe(before)
    await answered(5)
    expect(legs(decode, 'decode')).toEqual([1, 1, 1, 1, 1])
  })

  it('refuses an invalid rank, and one that exists', async () => {
    await start()
    const [prefill, decode] = [cluster.prefills[0]!, cluster.decodes[0]!]
    const add = async (body: object) =>
      errorOf(await call(cluster, 'POST', '/eldr/workers', { url: decode.url, role: 'decode', ...body }))
    for (const dpRank of [-1, 1.5, 'x', '1', 1024, 1e9, null])
      expect(await add({ dpRank })).toBe('400 ELDR_BAD_REQUEST')
    for (const rank of ['', '-1', 'x', '1@2', '1000000000'])
      expect(await add({ url: `${decode.url}@${rank}` })).toBe('400 ELDR_BAD_REQUEST')
    expect(await add({ url: `${decode.url}@1`, dpRank: 2 })).toBe('400 ELDR_BAD_REQUEST')
    expect(await add({ dpRank: 1, id: 'twice' })).toBe('409 ELDR_WORKER_CONFLICT')
    expect(await add({ id: 'whole' })).toBe('409 ELDR_WORKER_CONFLICT')
    expect(await add({ url: prefill.url, dpRank: 1, id: 'other' })).toBe('409 ELDR_WORKER_CONFLICT')
    expect(views()).toHaveLength(5)
  })
})
