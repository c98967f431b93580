/** Invalid responses of workers: none reaches a client unchanged, and none stops the gateway. */
import { createServer, type Server } from 'node:net'
import { once } from 'node:events'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from './cluster.ts'

let cluster: Cluster
/** An address that must never be connected to. */
let elsewhere: Server
let connections = 0
beforeAll(async () => {
  cluster = await startCluster({
    prefill: 1,
    decode: 1,
    config: {
      retries: { max: 0 },
      breaker: { consecutiveFailures: 1000, windowRequests: 100_000 },
      timeouts: { firstTokenMs: 5_000, prefillMs: 5_000 },
    },
  })
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

const TARGET = () => `http://127.0.0.1:${(elsewhere.address() as { port: number }).port}/v1/completions`
const OK = '{"choices":[]}'
const answer = (head: string, body = OK, status = '200 OK') =>
  `HTTP/1.1 ${status}\r\nconnection: close\r\n${head}content-length: ${body.length}\r\n\r\n${body}`
const JSON_TYPE = 'content-type: application/json\r\n'

/** Bytes of a worker, and the statuses that the client may get. */
const HEADS: [string, () => string, number[]][] = [
  ['a header twice', () => answer(`${JSON_TYPE}${JSON_TYPE}`), [200, 502]],
  ['two types', () => answer(`${JSON_TYPE}content-type: text/html\r\n`), [200, 502]],
  ['a type of a page', () => answer('content-type: text/html\r\n', '<p>'), [502]],
  ['no type', () => answer(''), [502]],
  [
    'a content type that is not ASCII',
    () => answer('content-type: application/json; charset=\xe9\xff\r\n'),
    [200, 502],
  ],
  ['control characters in a header', () => answer('content-type: application/json\x01\x7f\r\n'), [200, 502]],
  ['a fold in a header', () => answer('content-type: application/json\r\n\tx: y\r\n'), [200, 502]],
  [
    'a line feed in a header',
    () => answer('content-type: application/json\nset-cookie: a=b\r\n'),
    [200, 502],
  ],
  [
    'cookies and places',
    () =>
      answer(
        `${JSON_TYPE}set-cookie: a=b\r\nlocation: ${TARGET()}\r\nx-eldr-debug: 1\r\nx-request-id: other\r\naccess-control-allow-origin: *\r\n`,
      ),
    [200],
  ],
  ['very large headers', () => answer(`${JSON_TYPE}x-a: ${'a'.repeat(100_000)}\r\n`), [502]],
  ['two lengths', () => answer(`${JSON_TYPE}content-length: 3\r\n`), [502]],
  ['a length and chunks', () => answer(`${JSON_TYPE}transfer-encoding: chunked\r\n`), [502]],
  [
    'hints before the response',
    () => `HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n${answer(JSON_TYPE)}`,
    [200, 502],
  ],
  [
    'a change of protocol',
    () => 'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n',
    [502],
  ],
  ['nothing at all', () => answer(JSON_TYPE, '', '204 No Content'), [200, 204, 502]],
  [
    'a redirection',
    () => answer(`location: ${TARGET()}\r\n${JSON_TYPE}`, `{"go":"${TARGET()}"}`, '307 Temporary Redirect'),
    [502],
  ],
  ['a status beyond all statuses', () => answer(JSON_TYPE, OK, '999 Strange'), [502]],
  [
    'a second response after the first',
    () => answer(JSON_TYPE) + answer(JSON_TYPE, '{"second":1}'),
    [200, 502],
  ],
  ['less than it says', () => `HTTP/1.1 200 OK\r\n${JSON_TYPE}content-length: 100\r\n\r\n${OK}`, [502]],
]

describe.each(['/v1/completions', '/v1/responses'])('a worker that responds to %s with', path => {
  it.each(HEADS)('%s', async (name, bytes, statuses) => {
    const decode = cluster.decodes[0]!
    decode.failNext({ kind: 'garbage', bytes: bytes() }, { match: request => request.path === path })
    const response = await cluster.post(
      path,
      { prompt: 'a', input: 'a', max_tokens: 2 },
      { headers: { 'x-request-id': 'mine' } },
    )
    const text = await response.text()
    decode.clearFaults()
    // Passed-through responses may have any type.
    expect(path === '/v1/responses' && /type/.test(name) ? [200] : statuses).toContain(response.status)
    expect(response.headers.get('x-request-id')).toBe('mine')
    for (const header of [
      'set-cookie',
      'location',
      'link',
      'upgrade',
      'access-control-allow-origin',
      'server',
      'x-a',
    ])
      expect(response.headers.has(header)).toBe(false)
    expect(text).not.toMatch(/second|127\.0\.0\.1/)
    expect((await cluster.post('/v1/completions', { prompt: 'a', max_tokens: 2 })).status).toBe(200)
    expect(connections).toBe(0)
    await cluster.idle()
  })
})

describe('a prefill worker that responds with', () => {
  it.each(HEADS)('%s', async (_, bytes) => {
    cluster.prefills[0]!.failNext({ kind: 'garbage', bytes: bytes() })
    const response = await cluster.post('/v1/completions', { prompt: 'a', max_tokens: 2 })
    cluster.prefills[0]!.clearFaults()
    expect(response.status).toBe(502)
    expect(await response.text()).not.toMatch(/127\.0\.0\.1|<p>/)
    expect(connections).toBe(0)
    await cluster.idle()
  })
})
