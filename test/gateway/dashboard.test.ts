/** The dashboard's page and API over real sockets: access, pulses, experts, the plane, stories. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gunzipSync } from 'node:zlib'
import { request } from 'undici'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { EventReader } from '../../dashboard/server-events.ts'
import type { Hello, Pulse } from '../../src/gateway/observe/insight/wire.ts'
import { temporaryFolder } from '../trace-support.ts'
import { call, errorOf, smallArtifact } from './admin-support.ts'
import { type Cluster, type ClusterOptions, SHAPE, startCluster } from './cluster.ts'

const folder = temporaryFolder()
let two = ''
beforeAll(async () => void (two = (await smallArtifact(folder.path, 2)).path))
afterAll(() => folder.remove())

let cluster: Cluster
const start = async (options: ClusterOptions = {}) => void (cluster = await startCluster(options))
afterEach(() => cluster.stop())

const bearer = { authorization: 'Bearer sesame' }
const ask = async (id: string, body: object = {}) => {
  const response = await cluster.post(
    '/v1/completions',
    { prompt: 'a b c d e f g h', max_tokens: 4, stream: true, ...body },
    { headers: { 'x-request-id': id } },
  )
  expect(response.status).toBe(200)
  return response
}

/** Reads the stream of pulses. */
async function watch(headers: Record<string, string> = {}) {
  const stop = new AbortController()
  const response = await fetch(`${cluster.url}/eldr/pulse`, { signal: stop.signal, headers })
  expect(response.status).toBe(200)
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  const events = new EventReader()
  const seen: { event: string; data: unknown }[] = []
  async function next<T>(name: string, wanted: (data: T) => boolean = () => true): Promise<T> {
    for (;;) {
      while (seen.length > 0) {
        const { event, data } = seen.shift()!
        if (event === name && wanted(data as T)) return data as T
      }
      const { done, value } = await reader.read()
      if (done) throw new Error(`ended without ${name}`)
      for (const { event, data } of events.push(value))
        seen.push({ event, data: JSON.parse(data) as unknown })
    }
  }
  return { next, leave: () => stop.abort() }
}

describe('the page', () => {
  it('has its script and style, compressed or not, and a policy that allows nothing else', async () => {
    await start({ prefill: 1, decode: 1, config: { server: { adminToken: 'sesame', apiKeys: ['client'] } } })
    for (const [path, type, within] of [
      ['/dashboard', 'text/html', '<script type="module" src="dashboard/app.js">'],
      ['/dashboard/app.js', 'text/javascript', 'eldr/pulse'],
      ['/dashboard/app.css', 'text/css', '--group-0'],
      ['/dashboard/icon.svg', 'image/svg+xml', '<svg'],
    ] as const) {
      const plain = await request(`${cluster.url}${path}`)
      expect([plain.statusCode, plain.headers['content-type']]).toEqual([200, expect.stringContaining(type)])
      const policy = String(plain.headers['content-security-policy'])
      expect(policy).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self';/)
      expect(policy).not.toContain('unsafe')
      const text = await plain.body.text()
      expect(text).toContain(within)
      const packed = await request(`${cluster.url}${path}`, { headers: { 'accept-encoding': 'br, gzip' } })
      expect(packed.headers['content-encoding']).toBe('gzip')
      expect(gunzipSync(Buffer.from(await packed.body.arrayBuffer())).toString()).toBe(text)
      const again = await request(`${cluster.url}${path}`, {
        headers: { 'if-none-match': String(plain.headers['etag']) },
      })
      expect([again.statusCode, await again.body.text()]).toEqual([304, ''])
      const head = await request(`${cluster.url}${path}`, { method: 'HEAD' })
      expect([head.statusCode, await head.body.text()]).toEqual([200, ''])
    }
    const slash = await request(`${cluster.url}/dashboard/`)
    expect([
      slash.statusCode,
      new URL(String(slash.headers['location']), `${cluster.url}/dashboard/`).pathname,
    ]).toEqual([308, '/dashboard'])
    await slash.body.dump()
    for (const path of ['/dashboard/secret', '/dashboard/index.html', '/dashboards'])
      expect(errorOf(await call(cluster, 'GET', path))).toBe('404 ELDR_NOT_FOUND')
    expect(errorOf(await call(cluster, 'POST', '/dashboard', {}))).toBe('405 ELDR_METHOD')
  })

  it('is smaller than 250 KB and names no other host', async () => {
    await start({ prefill: 1, decode: 1 })
    let bytes = 0
    for (const path of ['/dashboard', '/dashboard/app.js', '/dashboard/app.css', '/dashboard/icon.svg']) {
      const answer = await request(`${cluster.url}${path}`, { headers: { 'accept-encoding': 'gzip' } })
      const body = Buffer.from(await answer.body.arrayBuffer())
      bytes += body.length
      const hosts =
        gunzipSync(body)
          .toString()
          .match(/\bhttps?:\/\/[^"'`\s)]+/g) ?? []
      // Names of XML namespaces, which are not fetched.
      expect(hosts.filter(host => !host.startsWith('http://www.w3.org/'))).toEqual([])
    }
    expect(bytes).toBeGreaterThan(10_000)
    expect(bytes).toBeLessThan(250_000)
  })

  it('and its API are absent if the dashboard is off', async () => {
    await start({ prefill: 1, decode: 1, config: { observe: { dashboard: 'off' } } })
    for (const path of [
      '/dashboard',
      '/dashboard/app.js',
      '/eldr/dashboard',
      '/eldr/pulse',
      '/eldr/experts',
      '/eldr/plane',
    ])
      expect(errorOf(await call(cluster, 'GET', path))).toBe('404 ELDR_NOT_FOUND')
  })
})

describe('read access', () => {
  it('requires the token if there is one', async () => {
    await start({ prefill: 1, decode: 1, config: { server: { adminToken: 'sesame' } } })
    expect((await call(cluster, 'GET', '/eldr/dashboard')).json).toEqual({
      version: expect.any(String),
      access: 'none',
      tokenSet: true,
    })
    for (const path of ['pulse', 'experts', 'plane', 'adapt', 'shadow', 'experiment', 'requests/a'])
      expect(errorOf(await call(cluster, 'GET', `/eldr/${path}`))).toBe('401 ELDR_UNAUTHORIZED')
    const known = await call(cluster, 'GET', '/eldr/dashboard', undefined, bearer)
    expect(known.json).toMatchObject({
      access: 'change',
      tokenSet: true,
      policies: expect.arrayContaining(['eldr', 'union']),
    })
    const events = await watch(bearer)
    expect((await events.next<Hello>('hello')).pulse.workers).toHaveLength(2)
    events.leave()
  })

  it('is open with an open dashboard, and changes still require the token', async () => {
    await start({
      prefill: 1,
      decode: 1,
      config: { server: { adminToken: 'sesame' }, observe: { dashboard: 'open' } },
    })
    const others = { 'x-forwarded-for': '10.0.0.9' }
    expect((await call(cluster, 'GET', '/eldr/dashboard', undefined, others)).json).toMatchObject({
      access: 'read',
    })
    for (const path of ['experts', 'adapt', 'shadow', 'experiment'])
      expect((await call(cluster, 'GET', `/eldr/${path}`, undefined, others)).status).toBe(200)
    const events = await watch(others)
    const { pulse } = await events.next<Hello>('hello')
    expect(JSON.stringify(pulse)).not.toContain('http://')
    events.leave()
    for (const [method, path] of [
      ['GET', '/eldr/config'],
      ['GET', '/eldr/workers'],
      ['PUT', '/eldr/policy'],
      ['POST', '/eldr/refit'],
      ['GET', '/eldr/events'],
    ] as const)
      expect(errorOf(await call(cluster, method, path, undefined, others))).toBe('401 ELDR_UNAUTHORIZED')
    // The allowed methods of a public route are public too.
    expect(errorOf(await call(cluster, 'POST', '/eldr/experts', undefined, others))).toBe('405 ELDR_METHOD')
  })
})

describe('an open dashboard', () => {
  it('reserves half of its watchers for those with the token', async () => {
    await start({
      prefill: 1,
      decode: 1,
      config: { server: { adminToken: 'sesame' }, observe: { dashboard: 'open' } },
    })
    const strangers = []
    for (let n = 0; n < 16; n++) strangers.push(await watch())
    expect((await fetch(`${cluster.url}/eldr/pulse`)).status).toBe(429)
    const holder = await watch({ authorization: 'Bearer sesame' })
    await holder.next('pulse')
    for (const watcher of [...strangers, holder]) watcher.leave()
  })

  it('does not show the address of an unreachable worker', async () => {
    await start({
      prefill: 1,
      decode: 1,
      config: { server: { adminToken: 'sesame' }, observe: { dashboard: 'open' }, retries: { max: 0 } },
    })
    await cluster.decodes[0]!.refuse()
    const answer = await cluster.post(
      '/v1/completions',
      { prompt: 'a', max_tokens: 4 },
      { headers: { 'x-request-id': 'lost' } },
    )
    expect(answer.status).toBeGreaterThanOrEqual(500)
    const { json } = await call(cluster, 'GET', '/eldr/requests/lost')
    expect(json.story.legs.at(-1)).toMatchObject({
      leg: 'decode',
      outcome: 'failed',
      why: expect.stringMatching(/^(connect|reset)$/) as string,
    })
  })
})

describe('pulses', () => {
  it('match the admin API and contain the decisions since the last one', async () => {
    await start({
      config: { routing: { policy: 'band', artifact: two } },
      prefillOptions: { counts: { ...SHAPE, variants: 4 } },
    })
    await call(cluster, 'GET', '/eldr/plane') // from now on live requests get a position in it
    const events = await watch()
    await events.next<Hello>('hello')
    for (let n = 0; n < 4; n++) await (await ask(`r${n}`)).text()
    const { sample, seen, health } = await events.next<Pulse>('pulse', pulse =>
      pulse.sample.some(({ request: id }) => id === 'r3'),
    )
    const logged = (await call(cluster, 'GET', '/eldr/decisions?limit=1')).json.decisions[0]
    const last = sample.at(-1)!
    expect(last).toMatchObject({
      request: 'r3',
      worker: logged.worker,
      reason: logged.reason,
      band: logged.band,
      at: [expect.any(Number), expect.any(Number)],
    })
    expect(last.candidates[0]!.similarity).toBeCloseTo(logged.candidates[0].similarity, 3)
    expect([seen, health.decisions, health.withoutSignature, health.coverage]).toEqual([
      sample.length,
      4,
      0,
      1,
    ])
    expect([health.compared, health.quantiles.every(({ calibration }) => calibration !== undefined)]).toEqual(
      [4, true],
    )
    // Their times may fall into two slices.
    const total = ({ pace }: Pulse, of: 'ttft' | 'tpot') =>
      pace.reduce((sum, point) => sum + (point[of]?.count ?? 0), 0)
    const after = await events.next<Pulse>('pulse', pulse => total(pulse, 'tpot') === 4)
    expect([total(after, 'ttft'), new Set(after.pace.map(({ policy }) => policy))]).toEqual([
      4,
      new Set(['band']),
    ])
    const text = await (await fetch(`${cluster.url}/metrics`)).text()
    expect(text).toContain('eldr_inter_token_seconds_count 4')
    const seconds = Number(/eldr_inter_token_seconds_sum ([\d.e-]+)/.exec(text)![1])
    const sumMs = after.pace.reduce(
      (sum, { tpot }) => sum + (tpot === undefined ? 0 : tpot.mean * tpot.count),
      0,
    )
    expect(sumMs).toBeCloseTo(1000 * seconds, 2)
    const { workers } = (await call(cluster, 'GET', '/eldr/workers')).json
    expect(
      after.workers.map(({ id, role, state, cluster: of }) => ({ id, role, state, cluster: of })),
    ).toEqual(
      workers.map((worker: Record<string, unknown>) => ({
        id: worker['id'],
        role: worker['role'],
        state: worker['state'],
        cluster: worker['cluster'],
      })),
    )
    await call(cluster, 'PUT', '/eldr/policy', { policy: 'jsq' })
    const changed = await events.next<Pulse>('pulse', ({ happenings }) => happenings.length > 0)
    expect([changed.routing.policy, changed.happenings[0]]).toMatchObject([
      'jsq',
      { kind: 'routing', change: 'policy' },
    ])
    events.leave()
  })

  // Relays do not know of watchers and keep stories as configured.
  it.skipIf(process.env['ELDR_TEST_PROCESSES'] !== undefined)(
    'cost nothing without watchers: no sample is kept and no timer runs',
    async () => {
      await start({ prefill: 1, decode: 1, config: { observe: { decisionsKept: 0 } } })
      await (await ask('unseen')).text()
      expect(errorOf(await call(cluster, 'GET', '/eldr/requests/unseen'))).toBe('404 ELDR_REQUEST_UNKNOWN')
      const events = await watch()
      await events.next<Hello>('hello')
      await (await ask('seen')).text()
      const { sample, watchers } = await events.next<Pulse>('pulse', pulse => pulse.sample.length > 0)
      expect([sample[0]!.request, watchers]).toEqual(['seen', 1])
      // It was shown to a watcher, so its story is kept.
      expect((await call(cluster, 'GET', '/eldr/requests/seen')).json).toMatchObject({
        decisions: [{ request: 'seen' }],
        story: { outcome: 'ok' },
      })
      events.leave()
    },
  )
})

describe('the story of a request', () => {
  it('has every leg with its worker, its times and its end', async () => {
    await start({ decode: 2, config: { routing: { policy: 'round_robin' } } })
    cluster.decodes[0]!.fail({ kind: 'status', status: 500 })
    const before = Date.now()
    for (const id of ['one', 'two']) await (await ask(id, { max_tokens: 6 })).text()
    await cluster.idle()
    const both = await Promise.all(
      ['one', 'two'].map(async id => (await call(cluster, 'GET', `/eldr/requests/${id}`)).json),
    )
    // With round robin, one of the two met the failing worker.
    const {
      story,
      decisions,
      request: id,
    } = both.find(({ story: { legs } }) =>
      legs.some(({ outcome }: { outcome: string }) => outcome === 'failed'),
    )
    expect(story).toMatchObject({
      request: id,
      route: 'completions',
      stream: true,
      maxTokens: 6,
      outcome: 'ok',
      status: 200,
    })
    expect(story.startedMs).toBeGreaterThanOrEqual(before - 1)
    const decodes = story.legs.filter(({ leg }: { leg: string }) => leg === 'decode')
    expect(decodes[0]).toMatchObject({
      worker: new URL(cluster.decodes[0]!.url).host,
      outcome: 'failed',
      why: 'status 500',
      attempt: 1,
    })
    expect(decodes.at(-1)).toMatchObject({
      outcome: 'served',
      tokens: expect.any(Number),
      firstMs: expect.any(Number),
    })
    for (const { fromMs, toMs } of story.legs) expect(toMs).toBeGreaterThanOrEqual(fromMs)
    expect(story.legs[0]).toMatchObject({ leg: 'prefill', outcome: 'handed_off', attempt: 1 })
    expect(decisions.map(({ worker }: { worker: string }) => worker)).toContain(decodes.at(-1).worker)
    expect(story.endMs).toBeGreaterThanOrEqual(story.firstMs)
  })

  it('is available while it runs, including its parts', async () => {
    await start({ config: { routing: { policy: 'jsq' } } })
    let release = () => {}
    const until = new Promise<void>(resolve => (release = resolve))
    for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'tokens', tokens: 1, until })
    const response = await ask('split', { n: 2 })
    const { story } = (await call(cluster, 'GET', '/eldr/requests/split')).json
    expect(story.endMs).toBeUndefined()
    const parts = story.legs
      .filter(({ leg }: { leg: string }) => leg === 'decode')
      .map(({ part }: { part: string }) => part)
    expect(parts.toSorted()).toEqual(['split-0', 'split-1'])
    release()
    await response.text()
  })
})

describe('experts', () => {
  it('are an estimate if the policy has one', async () => {
    await start({ config: { routing: { policy: 'union' } } })
    let release = () => {}
    const until = new Promise<void>(resolve => (release = resolve))
    for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'tokens', tokens: 1, until })
    const response = await ask('here', { max_tokens: 8 })
    const worker = (await call(cluster, 'GET', '/eldr/requests/here')).json.decodeWorkers[0]
    const { workers, ...shape } = (await call(cluster, 'GET', '/eldr/experts?expected=1')).json
    expect(shape).toEqual({ layers: SHAPE.layers, experts: SHAPE.experts, topK: SHAPE.topK })
    const sums = workers.map(({ id, answered, expected, union }: Record<string, unknown>) => {
      expect([answered, union]).toEqual([true, undefined])
      const cells = Buffer.from(expected as string, 'base64')
      expect(cells).toHaveLength(SHAPE.layers * SHAPE.experts)
      return [id, cells.reduce((sum, one) => sum + one, 0) > 0]
    })
    expect(Object.fromEntries(sums)).toEqual(
      Object.fromEntries(workers.map(({ id }: { id: string }) => [id, id === worker])),
    )
    expect((await call(cluster, 'GET', '/eldr/experts')).json.workers[0].expected).toBeUndefined()
    release()
    await response.text()
    await cluster.idle()
    const idle = (await call(cluster, 'GET', '/eldr/experts?expected=1')).json.workers
    for (const { expected } of idle)
      expect(Buffer.from(expected, 'base64').every(one => one === 0)).toBe(true)
  })

  it('of an engine without that route are its mean active experts per layer', async () => {
    const asked: string[] = []
    const metrics = [
      'eldr_active_experts{engine="0",layer="1"} 6',
      'eldr_active_experts{engine="0",layer="0"} 4',
      'eldr_active_experts{engine="1",layer="0"} 5',
      'eldr_active_experts{engine="1",layer="1"} NaN',
      'eldr_decode_batch{engine="0"} 3',
    ]
    const engine = createServer(({ url = '' }, response) => {
      asked.push(url)
      response.statusCode = url === '/eldr/union' ? 404 : 200
      response.end(url === '/metrics' ? `${metrics.join('\n')}\n` : '')
    })
    await new Promise<void>(resolve => engine.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(engine.address() as AddressInfo).port}`
    try {
      await start({ decode: 0, config: { workers: { decode: [{ id: 'vllm', url }] } } })
      for (let n = 0; n < 3; n++)
        expect((await call(cluster, 'GET', '/eldr/experts')).json.workers).toEqual([
          { id: 'vllm', answered: true, batch: 3, active: [4.5, 6] },
        ])
      // The worker's metrics page is not read again for each client.
      expect(asked.filter(path => path === '/eldr/union')).toHaveLength(1)
    } finally {
      engine.close()
      engine.closeAllConnections()
    }
  })

  it('of an unreachable worker are absent, and its health is checked at once', async () => {
    await start({ config: { health: { intervalMs: 60_000, failures: 1 } } })
    const gone = new URL(cluster.decodes[0]!.url).host
    await cluster.decodes[0]!.close()
    const events = await watch()
    const { workers } = (await call(cluster, 'GET', '/eldr/experts')).json
    expect(workers.find(({ id }: { id: string }) => id === gone)).toEqual({ id: gone, answered: false })
    await events.next<Pulse>('pulse', pulse =>
      pulse.workers.some(({ id, state }) => id === gone && state === 'unhealthy'),
    )
    events.leave()
  })
})

describe('the plane', () => {
  it('has the calibration requests and the centroids of the loaded artifact', async () => {
    await start()
    expect((await call(cluster, 'GET', '/eldr/plane')).json).toEqual({ plane: null })
    await call(cluster, 'POST', '/eldr/artifact', { path: two })
    const { plane } = (await call(cluster, 'GET', '/eldr/plane')).json
    expect([plane.points.length, plane.centroids.length]).toEqual([48, 2])
    // A centroid lies where the mean of its cluster does, but for its length: nearer to its own than to the
    // other's.
    for (const cluster of [0, 1]) {
      const own = plane.points.filter((point: number[]) => point[2] === cluster)
      const mean = [0, 1].map(
        axis => own.reduce((sum: number, point: number[]) => sum + point[axis]!, 0) / own.length,
      )
      const far = (k: number) =>
        Math.hypot(plane.centroids[k][0] - mean[0]!, plane.centroids[k][1] - mean[1]!)
      expect(far(cluster)).toBeLessThan(far(1 - cluster))
    }
    expect(plane.explained[0]).toBeGreaterThanOrEqual(plane.explained[1])
  })
})
