import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type FakeWorker, startFakeWorker } from '../fake-worker/index.ts'
import { temporaryFolder } from '../trace-support.ts'
import { call, errorOf, follow, smallArtifact, until } from './admin-support.ts'
import { type Cluster, type ClusterOptions, startCluster } from './cluster.ts'

const folder = temporaryFolder()
let [two, three] = ['', '']
beforeAll(async () => {
  two = (await smallArtifact(folder.path, 2)).path
  three = (await smallArtifact(folder.path, 3)).path
})
afterAll(() => folder.remove())

let cluster: Cluster
const extra: FakeWorker[] = []
const start = async (options: ClusterOptions = {}) => void (cluster = await startCluster(options))
afterEach(async () => {
  await cluster.stop()
  await Promise.all(extra.splice(0).map(worker => worker.close()))
})

const ask = async () => {
  const response = await cluster.post('/v1/completions', { prompt: 'a b c d e f g h', max_tokens: 2 })
  expect(response.status).toBe(200)
  return response
}
const lastDecision = async () => (await call(cluster, 'GET', '/eldr/decisions?limit=1')).json.decisions[0]
const routing = async () => (await call(cluster, 'GET', '/eldr/config')).json.routing
async function addDecode(more: object = {}): Promise<FakeWorker> {
  const worker = await startFakeWorker({ role: 'decode', prefills: cluster.prefills })
  extra.push(worker)
  expect(
    (await call(cluster, 'POST', '/eldr/workers', { url: worker.url, role: 'decode', ...more })).status,
  ).toBe(201)
  const { registry } = cluster.gateway.context
  await until(cluster, () =>
    registry.views(performance.now()).some(({ spec, state }) => spec.url === worker.url && state === 'ready'),
  )
  return worker
}

describe('a re-fit', () => {
  it('happens when a third decode worker is added: every worker gets a cluster, and the others keep their region', async () => {
    await start({ config: { routing: { policy: 'eldr', artifact: two } } })
    const before = cluster.gateway.control.loaded!.artifact.primary.centroids.slice()
    const events = await follow(cluster)
    const added = await addDecode()
    expect((await routing()).note).toBe('2 clusters for 3 decode workers')
    const { data } = await events.find(({ event, data }) => event === 'routing' && data.cause === 'refit')
    events.leave()
    expect(data.routing).toMatchObject({ decodeWorkers: 3, artifact: { clusters: 3, file: two } })
    expect(data.routing).not.toHaveProperty('note')
    const workers = (await call(cluster, 'GET', '/eldr/workers')).json.workers.filter(
      ({ role }: { role: string }) => role === 'decode',
    )
    expect(workers.map(({ cluster }: { cluster: number }) => cluster)).toEqual([0, 1, 2])
    const after = cluster.gateway.control.loaded!.artifact.primary.centroids
    const width = before.length / 2
    const cosine = (old: number, fresh: number) =>
      Array.from({ length: width }, (_, d) => before[old * width + d]! * after[fresh * width + d]!).reduce(
        (a, b) => a + b,
      )
    const kept = cosine(0, 0) + cosine(1, 1)
    for (const [a, b] of [
      [0, 2],
      [1, 0],
      [1, 2],
      [2, 0],
      [2, 1],
    ] as const)
      expect(kept).toBeGreaterThanOrEqual(cosine(0, a) + cosine(1, b) - 1e-6)
    for (let n = 0; n < 16; n++) await (await ask()).text()
    const { decisions } = (await call(cluster, 'GET', '/eldr/decisions?limit=8')).json
    for (const { candidates } of decisions)
      for (const { similarity } of candidates) expect(similarity).toEqual(expect.any(Number))
    expect(added.counters.decode).toBeGreaterThan(0)
    await cluster.idle()
  })

  it('happens when a worker is removed, and the others keep their clusters although their indices have a gap', async () => {
    await start({ decode: 3, config: { routing: { policy: 'eldr', artifact: three } } })
    const events = await follow(cluster)
    await call(cluster, 'DELETE', `/eldr/workers/${new URL(cluster.decodes[1]!.url).host}`)
    const { data } = await events.find(({ event, data }) => event === 'routing' && data.cause === 'refit')
    events.leave()
    expect(data.routing).toMatchObject({ decodeWorkers: 2, artifact: { clusters: 2 } })
    const workers = (await call(cluster, 'GET', '/eldr/workers')).json.workers.filter(
      ({ role }: { role: string }) => role === 'decode',
    )
    expect(workers.map(({ index, cluster }: { index: number; cluster: number }) => [index, cluster])).toEqual(
      [
        [0, 0],
        [2, 1],
      ],
    )
    await (await ask()).text()
    for (const { similarity } of (await lastDecision()).candidates)
      expect(similarity).toEqual(expect.any(Number))
  })

  it('happens at startup if the number of workers differs, and the gateway serves meanwhile', async () => {
    await start({ decode: 3, config: { routing: { policy: 'eldr', artifact: two } } })
    await (await ask()).text()
    await cluster.gateway.control.refit() // after the one that is under way
    expect(await routing()).toMatchObject({ artifact: { clusters: 3 }, decodeWorkers: 3 })
  })

  it('does not happen for a worker that is unhealthy or drained', async () => {
    await start({
      decode: 3,
      config: { routing: { policy: 'eldr', artifact: three }, health: { intervalMs: 20, failures: 1 } },
    })
    const { table } = cluster.gateway.context.router
    const { registry } = cluster.gateway.context
    const healthy = () => registry.candidates('decode', performance.now()).length
    cluster.decodes[1]!.fail({ kind: 'status', status: 500 }, { match: ({ path }) => path === '/health' })
    await until(cluster, () => healthy() === 2)
    cluster.decodes[1]!.clearFaults()
    await until(cluster, () => healthy() === 3)
    await call(cluster, 'POST', `/eldr/workers/${new URL(cluster.decodes[1]!.url).host}/drain`)
    expect((await routing()).note).toBeUndefined()
    expect(cluster.gateway.context.router.table).toBe(table)
  })

  it('is skipped if disabled, and the admin API says so', async () => {
    await start({ decode: 3, config: { routing: { policy: 'eldr', artifact: two, refit: 'off' } } })
    expect(await routing()).toMatchObject({
      note: '2 clusters for 3 decode workers',
      artifact: { clusters: 2 },
    })
    expect((await call(cluster, 'POST', '/eldr/refit')).json).toMatchObject({ artifact: { clusters: 3 } })
    expect((await routing()).note).toBeUndefined()
  })

  it('can be made for workers before they are added, and is not repeated when they are', async () => {
    await start({ config: { routing: { policy: 'eldr', artifact: two } } })
    expect((await call(cluster, 'POST', '/eldr/refit', { workers: 3 })).json).toMatchObject({
      artifact: { clusters: 3 },
      decodeWorkers: 2,
    })
    const { loaded } = cluster.gateway.control
    await addDecode()
    expect((await routing()).note).toBeUndefined()
    expect(cluster.gateway.control.loaded).toBe(loaded)
  })

  it('is refused without an artifact, or if it would remove the fixed cluster of a worker', async () => {
    const decode = await startFakeWorker({ role: 'decode' })
    extra.push(decode)
    await start({
      decode: 0,
      config: {
        routing: { policy: 'eldr', artifact: three },
        workers: { decode: [{ url: decode.url, id: 'last', cluster: 2 }] },
      },
    })
    const refused = await call(cluster, 'POST', '/eldr/refit')
    expect(errorOf(refused)).toBe('409 ELDR_REFIT_REFUSED')
    expect(refused.json.error.message).toBe('last has the fixed cluster 2, but the fit has 1 cluster.')
    expect((await routing()).note).toContain('not refitted: last has the fixed cluster 2')
    await cluster.stop()
    await start()
    expect(errorOf(await call(cluster, 'POST', '/eldr/refit'))).toBe('409 ELDR_REFIT_REFUSED')
    expect(errorOf(await call(cluster, 'POST', '/eldr/refit', { workers: 0 }))).toBe('400 ELDR_BAD_REQUEST')
  })

  it('is refused for more workers than the artifact has requests', async () => {
    await start({ config: { routing: { policy: 'eldr', artifact: two } } })
    const answer = await call(cluster, 'POST', '/eldr/refit', { workers: 500 })
    expect(errorOf(answer)).toBe('409 ELDR_REFIT_REFUSED')
    expect(answer.json.error.message).toContain('ELDR_TRACE_TOO_SMALL')
    expect((await routing()).artifact.clusters).toBe(2)
  })
})
