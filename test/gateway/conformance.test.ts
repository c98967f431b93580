/** HTTP conformance: raw bytes against a gateway in front of fake workers. */
import { gunzipSync, gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from './cluster.ts'
import { postBytes, RawClient } from './raw-socket.ts'

let cluster: Cluster
beforeAll(
  async () =>
    void (cluster = await startCluster({
      config: { server: { maxBodyBytes: 65_536, maxHeaderBytes: 4_096 } },
    })),
)
afterAll(() => cluster.stop())

const PROMPT = '{"prompt":"hello","max_tokens":3}'
const STREAM = '{"prompt":"hello","max_tokens":3,"stream":true}'
const GET = 'GET /version HTTP/1.1\r\nHost: gateway\r\n\r\n'
const client = () => new RawClient(cluster.url)

describe('a connection', () => {
  it('is kept open for many requests', async () => {
    const raw = client()
    for (let at = 1; at <= 3; at++) {
      const answers = await raw.send(postBytes(at === 2 ? STREAM : PROMPT)).answers(at)
      expect(answers[at - 1]).toMatchObject({ status: 200, headers: { connection: 'keep-alive' } })
    }
    raw.leave()
  })

  it('is kept open after a refusal if the request body is small or was read', async () => {
    const raw = client()
    const sent = [
      postBytes(PROMPT, '', '/nothing'),
      postBytes('{', ''),
      postBytes(PROMPT, '', '/v1/embeddings'),
      'DELETE /v1/models HTTP/1.1\r\nHost: a\r\n\r\n',
      GET,
    ]
    for (const [at, bytes] of sent.entries()) {
      const answers = await raw.send(bytes).answers(at + 1)
      expect(answers[at]!.status).toBe([404, 400, 404, 405, 200][at])
    }
    raw.leave()
  })

  it('closes after the response if the client asks for it', async () => {
    const [answer, ...more] = await client()
      .send(`${postBytes(PROMPT, 'Connection: close\r\n')}${GET}`)
      .toEnd()
    expect(answer).toMatchObject({ status: 200, headers: { connection: 'close' } })
    expect(more).toEqual([])
  })

  it('delivers responses in the order of the requests, even if the first is slow', async () => {
    let goOn = () => {}
    const held = new Promise<void>(resolve => (goOn = resolve))
    for (const decode of cluster.decodes)
      decode.failNext({ kind: 'hang', after: 'tokens', tokens: 1, until: held })
    const raw = client().send(`${postBytes(STREAM)}${GET}`)
    await raw.until(text => text.includes('data: '))
    raw.send(postBytes(PROMPT, '', '/nothing')).send(GET)
    goOn()
    const answers = await raw.answers(4)
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 404, 200])
    expect(answers[0]!.body).toContain('[DONE]')
    expect(answers[1]!.body).toContain('version')
    raw.leave()
    for (const decode of cluster.decodes) decode.clearFaults()
  })

  it('whose client leaves ends all its requests, also pipelined ones', async () => {
    for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'tokens', tokens: 1 })
    const raw = client().send(postBytes(STREAM).repeat(3))
    await raw.until(text => text.includes('data: '))
    raw.leave()
    await cluster.idle()
    expect(
      cluster.gateway.context.registry.views(performance.now()).every(({ inflight }) => inflight === 0),
    ).toBe(true)
    for (const decode of cluster.decodes) decode.clearFaults()
  })

  it('that its client half-closes counts as closed: nothing is generated for it', async () => {
    for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'request' })
    const raw = client().send(postBytes(PROMPT))
    await Promise.race(cluster.decodes.map(decode => decode.waitForActive(1)))
    raw.socket.end()
    await cluster.idle()
    expect(await raw.toEnd()).toEqual([])
    for (const decode of cluster.decodes) decode.clearFaults()
  })

  it('that ends within a request, or sends nothing, leaves nothing behind', async () => {
    for (const bytes of [
      '',
      'POST /v1/comp',
      postBytes(PROMPT).slice(0, -5),
      postBytes(PROMPT, 'Expect: 100-continue\r\n').slice(0, -5),
    ]) {
      const raw = client().send(bytes)
      await new Promise(resolve => raw.socket.once('ready', resolve))
      raw.socket.end()
      const answers = await raw.toEnd()
      expect(answers.filter(({ status }) => status >= 200 && status !== 400)).toEqual([])
    }
    await cluster.idle()
  })

  it('of a stopping gateway delivers the responses in flight and no more', async () => {
    const ending = await startCluster({ prefill: 1, decode: 1 })
    let goOn = () => {}
    ending.decodes[0]!.failNext({
      kind: 'hang',
      after: 'tokens',
      tokens: 1,
      until: new Promise<void>(resolve => (goOn = resolve)),
    })
    const raw = new RawClient(ending.url).send(postBytes(STREAM))
    await raw.until(text => text.includes('data: '))
    const stopped = ending.stop()
    raw.send(postBytes(PROMPT))
    goOn()
    const [first, second, ...more] = await raw.toEnd()
    expect(first).toMatchObject({ status: 200, body: expect.stringContaining('[DONE]') as string })
    // Its request may arrive after the connection is closed.
    expect([503, undefined]).toContain(second?.status)
    expect(more).toEqual([])
    await stopped
  })

  it.each([
    ['what is no request', 'GARBAGE\r\n\r\n'],
    ['headers that are too large', `GET / HTTP/1.1\r\nX-A: ${'a'.repeat(8_000)}\r\n\r\n`],
  ])('on which %s follows a request delivers the whole first response', async (_, bytes) => {
    const answers = await client()
      .send(`${postBytes(STREAM)}${bytes}${GET}`)
      .toEnd()
    expect(answers).toHaveLength(2)
    expect(answers[0]).toMatchObject({ status: 200, body: expect.stringContaining('[DONE]') as string })
    expect([400, 431]).toContain(answers[1]!.status)
  })
})

describe('a target', () => {
  it.each([
    ['GET http://elsewhere:1234/health', 200],
    ['GET HTTP://elsewhere/health?x', 200],
    ['GET http://elsewhere', 404],
    ['HEAD /health', 200],
    ['HEAD /v1/models', 200],
    ['HEAD /metrics', 200],
    ['HEAD /nothing', 404],
    ['GET /v1/completions', 405],
    ['HEAD /v1/chat/completions', 405],
    ['OPTIONS *', 405],
    ['OPTIONS /v1/completions', 405],
    ['PUT /health', 405],
    ['DELETE /v1/models', 405],
    ['TRACE /nothing', 404],
    ['GET /health#fragment', 400],
    ['GET /v1/../health', 400],
    ['GET *', 405],
  ])('%s gets %i', async (target, status) => {
    const method = target.split(' ')[0]!
    const raw = client().send(`${target} HTTP/1.1\r\nHost: a\r\n\r\n${GET}`)
    const answers = await raw.answers(2, [method])
    expect(answers.map(answer => answer.status)).toEqual([status, 200])
    expect(answers[0]!.headers['allow'] !== undefined).toBe(status === 405)
    expect(Number(answers[0]!.headers['content-length'])).toBeGreaterThan(0)
    raw.leave()
  })

  it('of CONNECT gets no tunnel', async () => {
    const address = cluster.decodes[0]!.url.slice('http://'.length)
    expect(
      await client()
        .send(`CONNECT ${address} HTTP/1.1\r\nHost: ${address}\r\n\r\nGET /health HTTP/1.1\r\n\r\n`)
        .toEnd(),
    ).toEqual([])
  })

  it('with an upgrade header is served without the upgrade', async () => {
    const raw = client().send(
      'GET /version HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n',
    )
    expect((await raw.answer()).status).toBe(200)
    raw.leave()
  })
})

describe('a client of HTTP/1.0', () => {
  it('gets responses and streams without chunks, and a closed connection', async () => {
    for (const [body, wanted] of [
      [PROMPT, '"choices"'],
      [STREAM, '[DONE]'],
    ] as const) {
      const [answer] = await client()
        .send(postBytes(body, '', '/v1/completions', '1.0'))
        .toEnd()
      expect(answer).toMatchObject({
        status: 200,
        headers: { connection: 'close' },
        body: expect.stringContaining(wanted) as string,
      })
      expect(answer!.headers).not.toHaveProperty('transfer-encoding')
    }
  })

  it('may keep its connection alive', async () => {
    const raw = client()
    for (let at = 1; at <= 2; at++) {
      const answers = await raw
        .send(postBytes(PROMPT, 'Connection: keep-alive\r\n', '/v1/completions', '1.0'))
        .answers(at)
      expect(answers[at - 1]).toMatchObject({ status: 200, headers: { connection: 'keep-alive' } })
    }
    raw.leave()
  })
})

describe('headers', () => {
  it('that are too large get 431', async () => {
    const answers = await client()
      .send(`GET /version HTTP/1.1\r\nHost: a\r\nX-A: ${'a'.repeat(5_000)}\r\n\r\n${GET}`)
      .toEnd()
    expect(answers.map(({ status, headers }) => [status, headers['connection']])).toEqual([[431, 'close']])
  })

  it('of one hop are not forwarded, in both directions', async () => {
    const hop =
      'Connection: x-mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=9\r\nProxy-Authorization: Basic x\r\nTE: trailers\r\nProxy-Connection: keep-alive\r\nCookie: a=b\r\nX-Forwarded-For: 1.2.3.4\r\nTraceparent: 00-11111111111111111111111111111111-2222222222222222-01\r\n'
    const head =
      'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close, x-secret\r\nx-secret: 1\r\nkeep-alive: timeout=5\r\nproxy-authenticate: Basic\r\nserver: uvicorn\r\nset-cookie: a=b\r\nlocation: http://worker/\r\nupgrade: h2c\r\ntrailer: x\r\n'
    for (const decode of cluster.decodes)
      decode.failNext({ kind: 'garbage', bytes: `${head}content-length: 14\r\n\r\n{"choices":[]}` })
    const { status, headers, body } = await client()
      .send(postBytes(PROMPT, `${hop}X-Request-Id: hop\r\n`))
      .answer()
    expect([status, body]).toEqual([200, '{"choices":[]}'])
    expect(Object.keys(headers).toSorted()).toEqual([
      'connection',
      'content-length',
      'content-type',
      'date',
      'keep-alive',
      'x-request-id',
    ])
    const { headers: sent } = [...cluster.prefills]
      .flatMap(({ requests }) => requests)
      .find(request => request.headers['x-request-id'] === 'hop')!
    expect(sent['traceparent']).toContain('1111')
    for (const name of [
      'x-mine',
      'keep-alive',
      'proxy-authorization',
      'te',
      'proxy-connection',
      'cookie',
      'x-forwarded-for',
      'expect',
    ])
      expect(sent).not.toHaveProperty(name)
    for (const decode of cluster.decodes) decode.clearFaults()
  })

  it('of a compressed response are forwarded, if a worker compresses against the request', async () => {
    const packed = gzipSync('{"choices":[]}')
    const bytes = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: ${packed.length}\r\nconnection: close\r\n\r\n${packed.toString('latin1')}`
    const match = ({ path }: { path: string }) => path === '/v1/completions' || path === '/v1/responses'
    for (const path of ['/v1/completions', '/v1/responses']) {
      for (const decode of cluster.decodes) decode.failNext({ kind: 'garbage', bytes }, { match })
      const { status, headers, body } = await client()
        .send(postBytes(PROMPT, 'Accept-Encoding: gzip\r\n', path))
        .answer()
      expect([status, headers['content-encoding']]).toEqual([200, 'gzip'])
      expect(gunzipSync(Buffer.from(body, 'latin1')).toString()).toBe('{"choices":[]}')
      for (const decode of cluster.decodes) decode.clearFaults()
    }
    for (const worker of [...cluster.prefills, ...cluster.decodes]) worker.failNext({ kind: 'gzip' })
    const { headers } = await client().send(postBytes(PROMPT, 'Accept-Encoding: gzip\r\n')).answer()
    expect(headers).not.toHaveProperty('content-encoding')
    for (const worker of [...cluster.prefills, ...cluster.decodes]) worker.clearFaults()
  })
})
