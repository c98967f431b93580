import { get } from 'node:http'
import { afterEach, describe, expect, it } from 'vitest'
import { type FakeWorker, startFakeWorker } from '../fake-worker/index.ts'
import { call, errorOf, until } from './admin-support.ts'
import { type Cluster, type ClusterOptions, eventsOf, SHAPE, startCluster } from './cluster.ts'

let cluster: Cluster
let more: FakeWorker | undefined
const start = async (options: ClusterOptions = {}) => void (cluster = await startCluster(options))
afterEach(async () => {
  await cluster.stop()
  await more?.close()
  more = undefined
})

const idOf = ({ url }: FakeWorker) => new URL(url).host
const isReady = (id: string) => () =>
  cluster.gateway.context.registry
    .views(performance.now())
    .some(({ spec, state }) => spec.id === id && state === 'ready')
const ask = (prompt = 'a', more: object = {}) =>
  cluster.post('/v1/completions', { prompt, max_tokens: 4, ...more })

/** A started stream on each decode worker, held until released. */
async function streamsOnAll(count: number) {
  let release = () => {}
  const until = new Promise<void>(resolve => (release = resolve))
  for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'tokens', tokens: 2, until })
  const responses = await Promise.all(Array.from({ length: count }, () => ask('a', { stream: true })))
  for (const decode of cluster.decodes) decode.clearFaults()
  return { release, texts: () => Promise.all(responses.map(eventsOf)) }
}

describe('GET /eldr/workers', () => {
  it('shows every worker with its address, state and load', async () => {
    await start({ config: { routing: { policy: 'jsq' } } })
    const streams = await streamsOnAll(2)
    const { status, json } = await call(cluster, 'GET', '/eldr/workers')
    expect(status).toBe(200)
    expect(json.workers).toHaveLength(4)
    const decode = json.workers.filter(({ role }: { role: string }) => role === 'decode')
    expect(decode).toEqual(
      cluster.decodes.map((worker, index) => ({
        id: idOf(worker),
        role: 'decode',
        url: worker.url,
        state: 'ready',
        breaker: 'closed',
        inflight: 1,
        tokens: 1,
        index,
        source: 'config',
      })),
    )
    streams.release()
    await streams.texts()
    await cluster.idle()
  })
})

describe('POST /eldr/workers', () => {
  it('adds a worker while others stream, and it gets requests once it is healthy', async () => {
    await start({ config: { routing: { policy: 'jsq' } } })
    const streams = await streamsOnAll(4)
    more = await startFakeWorker({ role: 'decode', prefills: cluster.prefills })
    const added = await call(cluster, 'POST', '/eldr/workers', {
      url: `${more.url}/`,
      role: 'decode',
      id: 'third',
    })
    expect(added).toMatchObject({
      status: 201,
      json: { id: 'third', url: more.url, role: 'decode', index: 2, inflight: 0 },
    })
    await until(cluster, isReady('third'))
    expect((await ask()).status).toBe(200)
    expect(more.counters.decode).toBe(1)
    streams.release()
    for (const events of await streams.texts()) expect(events.at(-1)).toBe('[DONE]')
    await cluster.idle()
  })

  it('adds a worker that union can use at once', async () => {
    await start({ decode: 1 })
    expect((await ask()).status).toBe(200)
    more = await startFakeWorker({ role: 'decode', prefills: cluster.prefills })
    await call(cluster, 'POST', '/eldr/workers', { url: more.url, role: 'decode' })
    await until(cluster, isReady(idOf(more)))
    await call(cluster, 'POST', `/eldr/workers/${idOf(cluster.decodes[0]!)}/drain`)
    expect((await ask()).status).toBe(200)
    expect(cluster.gateway.context.router.decisions(1)[0]).toMatchObject({
      policy: 'union',
      reason: 'least_cost',
      worker: idOf(more),
    })
  })

  it('adds prefill workers too', async () => {
    await start({ prefill: 1 })
    more = await startFakeWorker({ role: 'prefill', counts: SHAPE })
    expect((await call(cluster, 'POST', '/eldr/workers', { url: more.url, role: 'prefill' })).status).toBe(
      201,
    )
    await until(cluster, isReady(idOf(more)))
    await call(cluster, 'PUT', '/eldr/policy', { prefillPolicy: 'round-robin' })
    // Hand-offs of a worker that the decode workers do not know of are refused there; that it was asked is
    // enough.
    await Promise.all([ask(), ask()])
    expect(more.counters.prefill).toBeGreaterThan(0)
    await cluster.idle()
  })

  it('accepts the same worker twice, and refuses an id or URL in use', async () => {
    await start()
    const { url } = cluster.decodes[0]!
    const id = idOf(cluster.decodes[0]!)
    expect((await call(cluster, 'POST', '/eldr/workers', { url, role: 'decode' })).status).toBe(200)
    expect(errorOf(await call(cluster, 'POST', '/eldr/workers', { url, role: 'prefill' }))).toBe(
      '409 ELDR_WORKER_CONFLICT',
    )
    expect(errorOf(await call(cluster, 'POST', '/eldr/workers', { url, role: 'decode', id: 'other' }))).toBe(
      '409 ELDR_WORKER_CONFLICT',
    )
    expect(
      errorOf(await call(cluster, 'POST', '/eldr/workers', { url: 'http://10.0.0.9:1', role: 'decode', id })),
    ).toBe('409 ELDR_WORKER_CONFLICT')
    expect(
      errorOf(
        await call(cluster, 'POST', '/eldr/workers', {
          url: 'http://10.0.0.9:1',
          role: 'decode',
          cluster: 1,
        }),
      ),
    ).toBe('409 ELDR_WORKER_CONFLICT')
    expect((await call(cluster, 'GET', '/eldr/workers')).json.workers).toHaveLength(4)
  })

  it.each([
    [{ role: 'decode' }, 'url'],
    [{ url: 'http://a:1' }, 'role'],
    [{ url: 'http://a:1', role: 'both' }, 'role'],
    [{ url: 'a:1', role: 'decode' }, 'url'],
    [{ url: 'file:///a', role: 'decode' }, 'url'],
    [{ url: 'http://user:secret@a:1', role: 'decode' }, 'url'],
    [{ url: 'http://a:1/v1', role: 'decode' }, 'url'],
    [{ url: 7, role: 'decode' }, 'url'],
    [{ url: 'http://a:1', role: 'decode', id: 'a/b' }, 'id'],
    [{ url: 'http://a:1', role: 'decode', id: '' }, 'id'],
    [{ url: 'http://a:1', role: 'decode', cluster: -1 }, 'cluster'],
    [{ url: 'http://a:1', role: 'decode', cluster: 1e9 }, 'cluster'],
    [{ url: 'http://a:1', role: 'prefill', cluster: 1 }, 'cluster'],
    [{ url: 'http://a:1', role: 'decode', weight: 1 }, 'weight'],
    [[], null],
  ])('refuses %j for its %s', async (body, param) => {
    await start({ prefill: 1, decode: 1 })
    const answer = await call(cluster, 'POST', '/eldr/workers', body)
    expect(errorOf(answer)).toBe('400 ELDR_BAD_REQUEST')
    expect(answer.json.error.param).toBe(param)
    expect(JSON.stringify(answer.json)).not.toContain('secret')
    expect((await call(cluster, 'GET', '/eldr/workers')).json.workers).toHaveLength(2)
  })

  it('refuses bodies that are not JSON or too large', async () => {
    await start({ prefill: 1, decode: 1 })
    const post = (body: string) => cluster.post('/eldr/workers', body)
    expect((await post('{')).status).toBe(400)
    expect((await post(JSON.stringify({ url: 'x'.repeat(70_000) }))).status).toBe(413)
  })
})

describe('POST /eldr/workers/{id}/drain', () => {
  it('sends no new requests until undrained, and lets running ones finish', async () => {
    await start({ config: { routing: { policy: 'jsq' } } })
    const streams = await streamsOnAll(2)
    const [first, second] = cluster.decodes as [FakeWorker, FakeWorker]
    const drained = await call(cluster, 'POST', `/eldr/workers/${idOf(first)}/drain`)
    expect(drained).toMatchObject({ status: 200, json: { state: 'draining', inflight: 1 } })
    for (let n = 0; n < 3; n++) expect((await ask()).status).toBe(200)
    expect([first.counters.decode, second.counters.decode]).toEqual([1, 4])
    streams.release()
    for (const events of await streams.texts()) expect(events.at(-1)).toBe('[DONE]')
    await call(cluster, 'POST', `/eldr/workers/${idOf(second)}/drain`)
    expect(errorOf({ status: 503, json: await (await ask()).json() })).toBe('503 ELDR_NO_DECODE_WORKER')
    expect((await call(cluster, 'POST', `/eldr/workers/${idOf(first)}/undrain`)).json.state).toBe('ready')
    expect((await ask()).status).toBe(200)
    await cluster.idle()
  })
})

describe('DELETE /eldr/workers/{id}', () => {
  it('lets running streams finish before it removes the worker', async () => {
    await start({ config: { routing: { policy: 'jsq' } } })
    const streams = await streamsOnAll(4)
    const [first] = cluster.decodes as [FakeWorker]
    const removed = await call(cluster, 'DELETE', `/eldr/workers/${idOf(first)}`)
    expect(removed).toMatchObject({ status: 200, json: { id: idOf(first), state: 'leaving', inflight: 2 } })
    expect(errorOf(await call(cluster, 'DELETE', `/eldr/workers/${idOf(first)}`))).toBe(
      '404 ELDR_WORKER_UNKNOWN',
    )
    expect((await ask()).status).toBe(200)
    expect(first.counters.decode).toBe(2)
    streams.release()
    for (const events of await streams.texts()) expect(events.at(-1)).toBe('[DONE]')
    await until(cluster, () => cluster.gateway.context.registry.views(0).length === 3)
    await cluster.idle()
    expect(await (await fetch(`${cluster.url}/metrics`)).text()).not.toContain(idOf(first))
  })

  it('of the last worker makes the gateway unready until there is one again', async () => {
    await start({ decode: 1 })
    const [only] = cluster.decodes as [FakeWorker]
    expect((await call(cluster, 'DELETE', `/eldr/workers/${idOf(only)}`)).json).toMatchObject({
      state: 'gone',
      inflight: 0,
    })
    expect((await ask()).status).toBe(503)
    await call(cluster, 'POST', '/eldr/workers', { url: only.url, role: 'decode' })
    await until(cluster, isReady(idOf(only)))
    expect((await ask()).status).toBe(200)
    await cluster.idle()
  })
})

describe('ids in paths', () => {
  it.each([
    ['/eldr/workers/unknown/drain', 404, 'ELDR_WORKER_UNKNOWN'],
    ['/eldr/workers/%5B::1%5D:80/drain', 404, 'ELDR_WORKER_UNKNOWN'],
    ['/eldr/workers/a%00b/drain', 404, 'ELDR_NOT_FOUND'],
    ['/eldr/workers/%zz/drain', 404, 'ELDR_NOT_FOUND'],
    ['/eldr/workers/a%2Fb/drain', 400, 'ELDR_BAD_REQUEST'],
    [`/eldr/workers/${'x'.repeat(129)}/drain`, 404, 'ELDR_NOT_FOUND'],
    ['/eldr/workers//drain', 400, 'ELDR_BAD_REQUEST'],
    ['/eldr/nothing', 404, 'ELDR_NOT_FOUND'],
    ['/eldr/decisions', 405, 'ELDR_METHOD'],
    ['/eldr/requests/a', 405, 'ELDR_METHOD'],
  ])('are only taken for ids: POST %s gets %i', async (path, status, code) => {
    await start({ prefill: 1, decode: 1 })
    expect(errorOf(await call(cluster, 'POST', path))).toBe(`${status} ${code}`)
  })

  it.each(['/eldr/workers/../config', '/eldr/workers/%2e%2e/config', '/eldr/./config'])(
    'cannot traverse: GET %s is refused',
    async path => {
      await start({ prefill: 1, decode: 1 })
      const { hostname, port } = new URL(cluster.url)
      const status = await new Promise(resolve =>
        get({ hostname, port, path }, answer => answer.resume().on('end', () => resolve(answer.statusCode))),
      )
      expect(status).toBe(400)
    },
  )
})
