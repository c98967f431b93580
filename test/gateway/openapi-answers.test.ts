/**
 * Every operation of the document is brought to every status that the document has for it, on running
 * gateways, and what they answer is held against it: a status that cannot be had is one too many, one that
 * comes and is not there is missing.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Adaptation } from '../../src/gateway/app/adaptation.ts'
import { stopClock } from '../manual-clock.ts'
import { temporaryFolder } from '../trace-support.ts'
import { smallArtifact } from './admin-support.ts'
import { type Cluster, startCluster } from './cluster.ts'
import { artifactWithDomains, Asking, head, KEY, raw, soFar, TOKEN, wishFor } from './openapi-asking.ts'
import { type Asked, Conformance } from './openapi-support.ts'
import { RawClient } from './raw-socket.ts'

const folder = temporaryFolder()
let artifact = ''
let cluster: Cluster
let contract: Conformance
let asking: Asking
const STREAMS = ['/eldr/events', '/eldr/pulse']
let adapts = true

/** Live recalibration that has everything to show, and takes or refuses what it is told. */
function createAdaptation(): Adaptation {
  const judged = { gain: 0.04, gainHalf: 0.01, judgedBy: 'reported', moved: 3 } as const
  const requests = { sampleRequests: 200, heldOutRequests: 190 }
  const [sha256, parentSha256] = ['a'.repeat(64), 'b'.repeat(64)]
  const done = async () =>
    adapts ? ({ kind: 'ok' } as const) : ({ kind: 'refused', why: 'There is no suggestion.' } as const)
  return {
    decided() {},
    reported() {},
    streamed() {},
    artifactChanged() {},
    held() {},
    close() {},
    view: () => ({
      mode: 'on',
      state: 'held',
      note: 'The last swap was undone.',
      problem: 'The folder cannot be written.',
      drift: { meanRank: 0.1, sinceMs: 1e12, history: [{ fromMs: 1e12, meanRank: 0.1, requests: 7 }] },
      sample: { requests: 9, capacity: 256, halfLifeMs: 1, bytes: 4, reported: 2, needed: 256, usable: 9 },
      minGain: 0.01,
      last: { atMs: 1e12, seconds: 1.5, verdict: 'swap', ...judged, fitted: 200, heldOut: 190, inflight: 9 },
      suggestion: false,
      swaps: [
        {
          atMs: 1e12,
          file: 'a',
          sha256,
          parentSha256,
          state: 'undone',
          ...requests,
          ...judged,
          p99AfterMs: 2,
        },
      ],
    }),
    swap: done,
    undo: done,
  }
}

beforeAll(async () => {
  artifact = (await smallArtifact(folder.path, 2)).path
  cluster = await startCluster({
    prefill: 1,
    createAdaptation,
    replace: async () => ({ pid: 4711, version: '0.1.0' }),
    config: {
      server: { adminToken: TOKEN, apiKeys: [KEY] },
      routing: { artifact },
      limits: { maxConcurrentRequests: 2, queueSize: 0 },
    },
  })
  contract = await Conformance.of(cluster.url)
  asking = new Asking(contract, cluster.url)
})
afterAll(async () => {
  await cluster.stop()
  folder.remove()
})

const ask: Asking['ask'] = (...given) => asking.ask(...given)
const each: Asking['each'] = (...given) => asking.each(...given)
const all = (
  wanted: (asked: Asked & { operation: { responses: object; security: readonly object[] } }) => boolean,
) => contract.operations.filter(wanted)
/** Operations that document this status. */
const ending = (status: number) => all(({ operation }) => String(status) in operation.responses)

/** A change without a body. */
const UNREAD = 'DELETE /eldr/experiment/{id}'

describe('every operation', () => {
  it('gets 400, 417 or 431 if the request head is invalid', async () => {
    const everything = all(() => true)
    expect(everything.length).toBeGreaterThan(30)
    expect(await each(everything, asked => head(asked, '', 'Host: a\r\nHost: b\r\n'))).toEqual([400])
    expect(await each(everything, asked => head(asked, 'Expect: much\r\n'))).toEqual([417])
    expect(await each(everything, asked => head(asked, `X-Long: ${'a'.repeat(20_000)}\r\n`))).toEqual([431])
  })

  it('gets 401 with a wrong key, wherever the document requires one', async () => {
    expect(ending(401)).toEqual(all(({ operation }) => operation.security.length > 0))
    expect(await each(ending(401), asked => head(asked).replace(/Bearer \w+/, 'Bearer wrong'))).toEqual([401])
  })

  it('gets 413 if the body is too large, and 504 if it misses the client’s deadline', async () => {
    expect(await each(ending(413), asked => head(asked, 'Content-Length: 99999999\r\n'))).toEqual([413])
    expect(
      await each(ending(504), asked => head(asked, 'X-Request-Timeout-Ms: 20\r\nContent-Length: 10\r\n')),
    ).toEqual([504])
  })
})

describe('successful requests', () => {
  const chat = { messages: [{ role: 'user', content: 'a' }], max_tokens: 3 }

  it('generate, whole and as a stream, and name the workers to permitted clients', async () => {
    const headers = { 'x-eldr-debug': TOKEN, 'x-request-id': 'mine' }
    const { headers: named } = await ask('POST', '/v1/completions', 200, {
      body: { prompt: 'a', max_tokens: 3 },
      headers,
    })
    expect([named['x-request-id'], named['x-eldr-reason']]).toEqual(['mine', expect.any(String)])
    await ask('POST', '/v1/chat/completions', 200, { body: chat })
    for (const more of [{}, { n: 2 }, { stream_options: { include_usage: true } }]) {
      const streamed = await ask('POST', '/v1/completions', 200, {
        body: { prompt: 'a', max_tokens: 3, stream: true, ...more },
      })
      expect(streamed.body).toMatch(/data: \{[^]*data: \[DONE\]/)
      await ask('POST', '/v1/chat/completions', 200, { body: { ...chat, stream: true, ...more } })
    }
  })

  it('pass through to a worker', async () => {
    expect((await ask('GET', '/v1/models', 200)).body).toContain('"list"')
    await ask('POST', '/tokenize', 200, { body: { prompt: 'a b' } })
    cluster.decodes.forEach(decode =>
      decode.fail(
        { kind: 'answer', body: '{"prompt":"a"}' },
        { match: ({ path }) => path === '/detokenize' },
      ),
    )
    await ask('POST', '/detokenize', 200, { body: { tokens: [1] } })
    cluster.decodes.forEach(decode => decode.clearFaults())
    await ask('GET', '/v1/{path}', 200, { as: '/v1/models?again' })
    await ask('POST', '/v1/{path}', 200, {
      as: '/v1/completions?again',
      body: { prompt: 'a', max_tokens: 2 },
    })
    await ask('GET', '/v1/{path}', 404, { as: '/v1/embeddings' })
    await ask('POST', '/v1/{path}', 404, { as: '/v1/embeddings', body: {} })
  })

  it('show requests and decisions', async () => {
    for (const policy of ['eldr', 'union', 'jsq']) {
      await ask('PUT', '/eldr/policy', 200, { body: { policy } })
      await ask('POST', '/v1/completions', 200, {
        body: { prompt: 'a b c d', max_tokens: 3 },
        headers: { 'x-request-id': policy },
      })
      expect(
        (await ask('GET', '/eldr/requests/{id}', 200, { as: `/eldr/requests/${policy}` })).body,
      ).toContain('"story"')
    }
    const { decisions } = JSON.parse(
      (await ask('GET', '/eldr/decisions', 200, { as: '/eldr/decisions?limit=9' })).body,
    ) as { decisions: object[] }
    expect(decisions.length).toBeGreaterThan(2)
    await ask('GET', '/eldr/decisions', 400, { as: '/eldr/decisions?limit=none' })
    await ask('GET', '/eldr/requests/{id}', 404)
    await ask('GET', '/eldr/shadow', 200)
    expect((await ask('GET', '/eldr/config', 200)).body).not.toContain(TOKEN)
    await ask('GET', '/eldr/experts', 200)
    await ask('GET', '/eldr/experts', 200, { as: '/eldr/experts?expected=1' })
    await ask('GET', '/eldr/experts', 400, { as: '/eldr/experts?expected=yes' })
    expect((await ask('GET', '/eldr/plane', 200)).body).toContain('"centroids"')
    expect((await ask('GET', '/eldr/dashboard', 200)).body).toContain('change')
    expect((await ask('GET', '/eldr/dashboard', 200, { headers: { authorization: '' } })).body).toContain(
      'none',
    )
  })

  it('show health, and the dashboard page', async () => {
    for (const path of ['/health', '/ready', '/version', '/metrics', '/openapi.json'])
      await ask('GET', path, 200)
    const pages = all(({ path }) => path.startsWith('/dashboard') && path !== '/dashboard/')
    expect(pages).toHaveLength(4)
    for (const { path } of pages) {
      const { headers } = await ask('GET', path, 200)
      await ask('GET', path, 304, { headers: { 'if-none-match': headers['etag']! } })
    }
    await ask('GET', '/dashboard/', 308)
  })

  it('change workers', async () => {
    const worker = { url: 'http://127.0.0.1:9', role: 'decode', id: 'x' }
    expect((await ask('GET', '/eldr/workers', 200)).body).toContain('"ready"')
    await ask('POST', '/eldr/workers', 201, { body: worker })
    await ask('POST', '/eldr/workers', 200, { body: worker })
    await ask('POST', '/eldr/workers', 409, { body: { ...worker, role: 'prefill' } })
    await ask('POST', '/eldr/workers', 400, { body: { ...worker, url: 'nowhere' } })
    for (const way of ['drain', 'undrain']) {
      await ask('POST', `/eldr/workers/{id}/${way}`, 200)
      await ask('POST', `/eldr/workers/{id}/${way}`, 404, { as: `/eldr/workers/y/${way}` })
      await ask('POST', `/eldr/workers/{id}/${way}`, 404, { as: `/eldr/workers/%ff/${way}` })
    }
    await ask('DELETE', '/eldr/workers/{id}', 200)
    await ask('DELETE', '/eldr/workers/{id}', 404)
  })

  it('change routing', async () => {
    expect((await ask('POST', '/eldr/refit', 200)).body).toContain('"clusters":2')
    await ask('POST', '/eldr/refit', 400, { body: { workers: 0 } })
    await ask('POST', '/eldr/refit', 409, { body: { workers: 60_000 } })
    await ask('POST', '/eldr/artifact', 200, { body: { path: artifact } })
    await ask('POST', '/eldr/artifact', 422, {
      body: 'no artifact',
      headers: { 'content-type': 'application/octet-stream' },
    })
    await ask('PUT', '/eldr/policy', 400, { body: {} })
    const usual = process.env['TMPDIR']
    process.env['TMPDIR'] = `${folder.path}/nowhere`
    await ask('POST', '/eldr/artifact', 507, {
      body: 'no artifact',
      headers: { 'content-type': 'application/octet-stream' },
    }).finally(() => (usual === undefined ? delete process.env['TMPDIR'] : (process.env['TMPDIR'] = usual)))
  })

  it('run experiments', async () => {
    await ask('GET', '/eldr/experiment', 200)
    await ask('POST', '/eldr/experiment', 400, { body: { policies: 'jsq' } })
    const body = { policies: ['jsq', 'power-of-two'], leaseMs: 600_000 }
    const { id } = JSON.parse((await ask('POST', '/eldr/experiment', 201, { body })).body) as { id: string }
    await ask('POST', '/eldr/experiment', 409, { body })
    await ask('GET', '/eldr/experiment', 200)
    const path = '/eldr/experiment/{id}'
    const as = `/eldr/experiment/${id}`
    await ask('PUT', path, 200, { as, body: { policy: 'jsq', washoutMs: 0 } })
    await ask('POST', '/v1/completions', 200, { body: { prompt: 'a', max_tokens: 2, stream: true } })
    const slot = await ask('PUT', path, 200, { as, body: { policy: 'power-of-two' } })
    expect(slot.body).toContain('"streams":1')
    await ask('PUT', path, 409, { as, body: { policy: 'eldr' } })
    await ask('PUT', path, 400, { as, body: { washoutMs: 5 } })
    await ask('PUT', path, 404)
    await ask('DELETE', path, 404)
    await ask('DELETE', path, 200, { as })
  })

  it('adapt to live traffic', async () => {
    expect((await ask('GET', '/eldr/adapt', 200)).body).toContain('"judgedBy":"reported"')
    await ask('POST', '/eldr/adapt/swap', 200)
    await ask('POST', '/eldr/adapt/undo', 200)
    await ask('POST', '/eldr/adapt/swap', 400, { body: { now: true } })
    await ask('POST', '/eldr/adapt/undo', 400, { body: { now: true } })
    adapts = false
    await ask('POST', '/eldr/adapt/swap', 409)
    await ask('POST', '/eldr/adapt/undo', 409)
  })

  it('change the log level', async () => {
    await ask('PUT', '/eldr/log-level', 200, { body: { level: 'silent', forMs: 60_000 } })
    expect((await ask('GET', '/eldr/log-level', 200)).body).toContain('"leftMs"')
    await ask('PUT', '/eldr/log-level', 400, { body: { level: 'loud' } })
    await ask('PUT', '/eldr/log-level', 200, { body: { level: 'silent' } })
    expect((await ask('POST', '/eldr/replace', 200)).body).toContain('4711')
    await ask('POST', '/eldr/replace', 400, { body: { pid: 1 } })
  })
})

describe('endless streams', () => {
  it.each(STREAMS)('%s sends events, to a limited number of readers', async path => {
    const clients: RawClient[] = []
    for (let n = 0; n < 32; n++) {
      const client = new RawClient(cluster.url).send(head({ method: 'GET', path }))
      clients.push(client)
      await client.until(text => text.includes('retry: 2000'))
    }
    const full = await raw(head({ method: 'GET', path }), cluster.url)
    expect(full.status).toBe(429)
    contract.check({ method: 'GET', path }, full)
    await ask('PUT', '/eldr/policy', 200, { body: { policy: 'round_robin' } })
    await ask('POST', '/v1/completions', 200, { body: { prompt: 'a', max_tokens: 2 } })
    await ask('POST', '/eldr/workers', 201, { body: { url: 'http://127.0.0.1:9', role: 'decode', id: 'x' } })
    await ask('DELETE', '/eldr/workers/{id}', 200)
    const wanted = path === '/eldr/events' ? ['decision', 'routing', 'worker'] : ['hello', 'pulse']
    await clients[0]!.until(
      text => wanted.every(kind => text.includes(`event: ${kind}\n`)) && text.endsWith('\n\n\r\n'),
    )
    contract.check({ method: 'GET', path }, soFar(clients[0]!))
    for (const client of clients) client.leave()
  })
})

describe('errors', () => {
  const GENERATING = () => all(({ path }) => ['/v1/completions', '/v1/chat/completions'].includes(path))
  const FROM_WORKERS = () => all(({ operation }) => '4XX' in operation.responses)
  const everything = { match: ({ path }: { path: string }) => path !== '/health' && path !== '/metrics' }

  it('502, and a refusal by the worker', async () => {
    for (const decode of cluster.decodes)
      decode.fail({ kind: 'status', status: 422, message: 'not so' }, everything)
    for (const asked of FROM_WORKERS())
      expect((await ask(asked.method, asked.path, 422, wishFor(asked))).body).toContain('not so')
    for (const decode of cluster.decodes) {
      decode.clearFaults()
      decode.fail({ kind: 'status', status: 500 }, everything)
    }
    for (const asked of ending(502)) await ask(asked.method, asked.path, 502, wishFor(asked))
    for (const decode of cluster.decodes) decode.clearFaults()
    expect(ending(502)).toEqual(FROM_WORKERS())
  })

  it('429: at capacity', async () => {
    let release = () => {}
    const until = new Promise<void>(resolve => (release = resolve))
    cluster.prefills[0]!.fail({ kind: 'hang', after: 'request', until })
    const held = [1, 2].map(() =>
      fetch(`${cluster.url}/v1/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${KEY}` },
        body: '{"prompt":"a","max_tokens":2}',
      }),
    )
    await cluster.prefills[0]!.waitForActive(2)
    for (const asked of FROM_WORKERS())
      expect((await ask(asked.method, asked.path, 429, wishFor(asked))).headers['retry-after']).toBe('1')
    release()
    for (const response of await Promise.all(held)) await response.text()
    cluster.prefills[0]!.clearFaults()
    expect(GENERATING()).toHaveLength(2)
  })

  it('409: a policy that needs an artifact, and 500: an internal error', async () => {
    const bare = await startCluster({
      prefill: 1,
      decode: 1,
      config: { server: { adminToken: TOKEN, apiKeys: [KEY] } },
    })
    asking.url = bare.url
    try {
      expect((await ask('GET', '/eldr/plane', 200)).body).toBe('{"plane":null}')
      await ask('PUT', '/eldr/policy', 409, { body: { policy: 'eldr' } })
      await ask('POST', '/eldr/refit', 409)
      await ask('POST', '/eldr/artifact', 200, { body: { path: await artifactWithDomains(folder.path) } })
      await ask('PUT', '/eldr/policy', 200, { body: { policy: 'domain' } })
      await ask('POST', '/eldr/artifact', 409, { body: { path: artifact } })
      bare.gateway.context.metrics.registry.metrics = () => Promise.reject(new Error('as a test wants it'))
      await ask('GET', '/metrics', 500)
    } finally {
      asking.url = cluster.url
      await bare.stop()
    }
  })

  it('403: not from localhost', async () => {
    const local = await startCluster({ prefill: 1, decode: 1 })
    try {
      const without = await Conformance.of(local.url)
      const closed = without.operations.filter(({ operation }) => '403' in operation.responses)
      expect(closed.map(({ path }) => path)).toEqual(
        all(({ path }) => path.startsWith('/eldr/') && path !== '/eldr/dashboard').map(({ path }) => path),
      )
      for (const asked of closed) {
        const answer = await raw(head(asked, 'X-Forwarded-For: 192.0.2.1\r\n'), local.url)
        expect(answer.status).toBe(403)
        without.check(asked, answer)
      }
    } finally {
      await local.stop()
    }
  })

  it('408: unfinished headers; 503: a gateway without workers, and one that stops', async () => {
    const slow = await startCluster({
      prefill: 1,
      decode: 1,
      config: {
        server: { adminToken: TOKEN, apiKeys: [KEY], headersTimeoutMs: 3_000, shutdownGraceMs: 300 },
      },
    })
    const late = await Promise.all(
      contract.operations.map(async asked => ({
        asked,
        answer: await raw(head(asked).slice(0, -2), slow.url),
      })),
    )
    for (const { asked, answer } of late) {
      expect(answer.status).toBe(408)
      contract.check(asked, answer)
    }
    asking.url = slow.url
    try {
      const id = slow.gateway.context.registry
        .views(performance.now())
        .find(({ spec }) => spec.role === 'decode')!.spec.id
      await ask('POST', '/eldr/workers/{id}/drain', 200, {
        as: `/eldr/workers/${encodeURIComponent(id)}/drain`,
      })
      await ask('GET', '/ready', 503)
      for (const asked of FROM_WORKERS()) await ask(asked.method, asked.path, 503, wishFor(asked))
      // Changes are held back while a successor starts.
      await slow.gateway.changes.freeze()
      await ask('DELETE', '/eldr/experiment/{id}', 503, { as: '/eldr/experiment/any' })
      slow.gateway.changes.thaw()
      // Bodies that never come: the grace period ends before them.
      const reading = ending(503).filter(
        ({ method, path }) =>
          path.startsWith('/eldr/') && !STREAMS.includes(path) && `${method} ${path}` !== UNREAD,
      )
      expect(reading.length).toBe(13)
      const waiting = reading.map(asked => ({
        asked,
        client: new RawClient(slow.url).send(head(asked, 'Expect: 100-continue\r\nContent-Length: 10\r\n')),
      }))
      for (const { client } of waiting) await client.until(text => text.includes('100 Continue'))
      // The grace period does not end before the streams have been refused.
      const clock = stopClock()
      const stopped = slow.gateway.stop()
      for (const path of STREAMS) await ask('GET', path, 503)
      clock.advance(300)
      for (const { asked, client } of waiting) {
        const answer = (await client.answers(2))[1]!
        expect([asked.path, answer.status]).toEqual([asked.path, 503])
        contract.check(asked, answer)
        client.leave()
      }
      await clock.during(stopped)
    } finally {
      asking.url = cluster.url
      await slow.stop()
    }
  })

  it('cover every response of the document, except internal errors that no request can cause', () => {
    const never = contract.documented.filter(name => !contract.seen.has(name) && !name.endsWith(' 500'))
    expect(never).toEqual([])
    expect(contract.seen.size).toBeGreaterThan(200)
  })
})
