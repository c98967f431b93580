/** Access control, and what the gateway sends to workers, clients and its log. */
import { createServer, type Server } from 'node:net'
import { once } from 'node:events'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from './cluster.ts'
import { postBytes, RawClient } from './raw-socket.ts'

const PROMPT = { prompt: 'hello', max_tokens: 3 }

describe('a gateway with keys', () => {
  let cluster: Cluster
  const LONG = 'k'.repeat(2_000)
  beforeAll(
    async () =>
      void (cluster = await startCluster({
        prefill: 1,
        decode: 1,
        config: { server: { apiKeys: ['first-key', 'second-key', LONG] }, workers: { apiKey: 'of-workers' } },
      })),
  )
  afterAll(() => cluster.stop())

  it.each([
    ['the first', { authorization: 'Bearer first-key' }, 200],
    ['the second', { authorization: 'Bearer second-key' }, 200],
    ['a long one', { authorization: `Bearer ${LONG}` }, 200],
    ['one in another case of the scheme', { authorization: 'bEARER   second-key' }, 200],
    ['one in its own header', { 'x-api-key': 'first-key' }, 200],
    [
      'one in its own header, beside another scheme',
      { authorization: 'Basic Zmlyc3Qta2V5', 'x-api-key': 'first-key' },
      200,
    ],
    ['none', {}, 401],
    ['an empty one', { authorization: 'Bearer ' }, 401],
    ['an empty one in its own header', { 'x-api-key': '' }, 401],
    ['a wrong one', { authorization: 'Bearer first-kez' }, 401],
    ['the beginning of one', { authorization: 'Bearer first-ke' }, 401],
    ['one and more', { authorization: 'Bearer first-key1' }, 401],
    ['two at once', { authorization: 'Bearer first-key, second-key' }, 401],
    ['one of another case', { authorization: 'Bearer FIRST-KEY' }, 401],
    ['one without its scheme', { authorization: 'first-key' }, 401],
    ['one with another scheme', { authorization: 'Basic first-key' }, 401],
    ['a wrong one beside a right one', { authorization: 'Bearer wrong', 'x-api-key': 'first-key' }, 401],
    ['that of the workers', { authorization: 'Bearer of-workers' }, 401],
    ['a very long one', { authorization: `Bearer ${'k'.repeat(12_000)}` }, 401],
  ])('%s is accepted or refused', async (_, headers, status) => {
    for (const path of ['/v1/completions', '/v1/responses']) {
      const response = await cluster.post(path, PROMPT, { headers })
      const allowed = status === 200
      expect([401, 431].includes(response.status)).toBe(!allowed)
      expect(response.headers.get('www-authenticate')).toBe(allowed ? null : 'Bearer')
      expect(await response.text()).not.toMatch(/first-key|second-key|of-workers/)
    }
  })

  it('sends the workers’ key to workers, and never a client’s', () => {
    const requests = [...cluster.prefills, ...cluster.decodes].flatMap(worker => worker.requests)
    expect(new Set(requests.map(({ headers }) => headers['authorization']))).toEqual(
      new Set(['Bearer of-workers']),
    )
    expect(requests.some(({ headers }) => headers['x-api-key'] !== undefined)).toBe(false)
  })

  it('needs none for health and readiness', async () => {
    for (const path of ['/health', '/ready', '/metrics', '/version'])
      expect((await fetch(`${cluster.url}${path}`)).status).toBe(200)
  })
})

describe('a client', () => {
  let cluster: Cluster
  let elsewhere: Server
  let connections = 0
  beforeAll(async () => {
    cluster = await startCluster({ prefill: 1, decode: 1 })
    elsewhere = createServer(socket => {
      connections++
      socket.destroy()
    }).listen(0, '127.0.0.1')
    await once(elsewhere, 'listening')
  })
  afterAll(async () => {
    elsewhere.close()
    await cluster.stop()
  })
  const address = () => `127.0.0.1:${(elsewhere.address() as { port: number }).port}`
  const received = () => [...cluster.prefills, ...cluster.decodes].flatMap(worker => worker.requests)

  it('cannot redirect the gateway by an absolute URL or a Host header', async () => {
    for (const bytes of [
      postBytes(JSON.stringify(PROMPT), '', `http://${address()}/v1/completions`),
      postBytes(JSON.stringify(PROMPT)).replace('Host: gateway', `Host: ${address()}`),
      postBytes(
        JSON.stringify(PROMPT),
        `X-Forwarded-Host: ${address()}\r\nForwarded: host=${address()}\r\nX-Original-URL: http://${address()}/\r\n`,
      ),
      postBytes('{}', '', `http://user@${address()}/v1/responses`),
    ]) {
      const raw = new RawClient(cluster.url).send(bytes)
      expect([200, 404]).toContain((await raw.answer()).status)
      raw.leave()
    }
    expect(
      received().every(
        ({ headers }) => headers['host']!.startsWith('127.0.0.1:') && headers['host'] !== address(),
      ),
    ).toBe(true)
    expect(connections).toBe(0)
  })

  it('cannot tell a worker where to fetch KV blocks from, on any route', async () => {
    const mine = {
      do_remote_prefill: true,
      remote_host: '127.0.0.1',
      remote_port: 1,
      remote_engine_id: 'evil',
      remote_block_ids: [[1]],
      remote_request_id: 'evil',
    }
    const bodies: [string, object][] = [
      ['/v1/completions', PROMPT],
      ['/v1/completions', { prompt: 'a', max_tokens: 1 }],
      ['/v1/completions', { prompt: 'a', max_tokens: 3, best_of: 2, use_beam_search: true }],
      ['/v1/completions', { prompt: ['a', 'b'], max_tokens: 3 }],
      [
        '/v1/chat/completions',
        { messages: [{ role: 'user', content: 'a' }], max_tokens: 3, prompt_logprobs: 1 },
      ],
      ['/v1/responses', { input: 'a' }],
      ['/tokenize', { prompt: 'a' }],
    ]
    const before = received().length
    for (const [path, body] of bodies) {
      await (await cluster.post(path, { ...body, kv_transfer_params: mine })).text()
      const text = JSON.stringify({ ...body, kv_transfer_params: mine }).replace(
        '"kv_transfer_params"',
        '"kv_transfer\\u005fparams"',
      )
      await (await cluster.post(path, text)).text()
    }
    const after = received().slice(before)
    expect(after.length).toBeGreaterThan(bodies.length)
    expect(after.filter(({ body }) => body.includes('evil'))).toEqual([])
  })

  it.each([
    '/v1/%63ompletions',
    '/v1/%65mbeddings',
    '/v1/load_lora_%61dapter',
    '/v1/models/%2e%2e/%2e%2e/metrics',
    '/v1/../metrics',
    '/v1/./models',
    '/v1//models',
    '//v1/models',
    '/v1/..%2fmetrics',
    '/v1/..\\metrics',
    '/v1/models%00',
    '/v1/models%0d%0ax:y',
    '/v1/completions/',
    '/v1/',
    '/v1',
    '/V1/models',
    '/%76%31/models',
    '/fake/counters',
    '/reset_prefix_cache',
    '/server_info',
    '/v1/load_lora_adapter',
    '/v1/embeddings?x=/v1/models',
    '/__proto__',
    '/constructor',
  ])('does not reach a worker by the path %s', async path => {
    const before = received().filter(({ path: seen }) => seen !== '/health' && seen !== '/metrics').length
    for (const method of ['GET', 'POST']) {
      const raw = new RawClient(cluster.url).send(
        `${method} ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n`,
      )
      expect([400, 404]).toContain((await raw.answer()).status)
      raw.leave()
    }
    expect(received().filter(({ path: seen }) => seen !== '/health' && seen !== '/metrics').length).toBe(
      before,
    )
  })

  it.each([
    ['mine-1:2.3_4', true],
    ['a'.repeat(128), true],
    ['a'.repeat(129), false],
    ['a'.repeat(9_000), false],
    ['', false],
    ['with blanks', false],
    ['a%0d%0ax-evil: 1', false],
    ['a\tb', false],
    ['a"b\\', false],
    ['\xe9', false],
    ['${jndi:x}', false],
    ['<script>', false],
  ])('may set the request id %j, or gets a generated one', async (id, taken) => {
    const raw = new RawClient(cluster.url).send(postBytes(JSON.stringify(PROMPT), `X-Request-Id: ${id}\r\n`))
    const { headers } = await raw.answer()
    expect(headers['x-request-id'] === id).toBe(taken)
    expect(headers['x-request-id']).toMatch(taken ? /^/ : /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/)
    expect(headers).not.toHaveProperty('x-evil')
    expect(received().findLast(({ isGeneration }) => isGeneration)!.headers['x-request-id']).toBe(
      headers['x-request-id'],
    )
    raw.leave()
  })

  it('cannot inject a response header by a line break in its request id', async () => {
    for (const id of ['a\r\nx-evil: 1', 'a\nx-evil: 1', 'a\r x']) {
      const raw = new RawClient(cluster.url).send(
        postBytes(JSON.stringify(PROMPT), `X-Request-Id: ${id}\r\n`),
      )
      expect((await raw.answer()).headers).not.toHaveProperty('x-evil')
      raw.leave()
    }
  })
})
