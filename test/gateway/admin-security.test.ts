/** Attempts to change things without permission, and requests that no ordinary client sends. */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../trace-support.ts'
import { type Cluster, startCluster } from './cluster.ts'
import { type RawAnswer, RawClient } from './raw-socket.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())

async function raw({ url }: Cluster, bytes: string, method?: string): Promise<RawAnswer> {
  const client = new RawClient(url).send(bytes)
  const answer = await client.answer(method)
  client.leave()
  return answer
}
const codeOf = ({ status, body }: RawAnswer) =>
  `${status} ${(JSON.parse(body) as { error?: { code: string } }).error?.code}`
const LOCAL = 'Host: 127.0.0.1\r\n'

describe('without the token', () => {
  let cluster: Cluster
  beforeAll(
    async () =>
      void (cluster = await startCluster({
        prefill: 1,
        decode: 1,
        config: { server: { adminToken: 'sesame' }, observe: { dashboard: 'open' } },
      })),
  )
  afterAll(() => cluster.stop())

  it.each(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])(
    '%s of a protected route gets 401 with WWW-Authenticate',
    async method => {
      for (const path of [
        '/eldr/workers',
        '/eldr/workers/a',
        '/eldr/config',
        '/eldr/policy',
        '/eldr/events',
        '/eldr',
        '/eldr/',
      ]) {
        const { status, headers } = await raw(cluster, `${method} ${path} HTTP/1.1\r\n${LOCAL}\r\n`, method)
        expect([path, status, headers['www-authenticate']]).toEqual([path, 401, 'Bearer'])
      }
    },
  )

  it('an open dashboard allows reading and no other method', async () => {
    for (const path of ['/eldr/dashboard', '/eldr/experts', '/eldr/plane', '/eldr/shadow', '/eldr/pulse']) {
      const answers = ['HEAD', 'POST', 'PUT', 'DELETE'].map(
        async method =>
          (await raw(cluster, `${method} ${path} HTTP/1.1\r\n${LOCAL}Connection: close\r\n\r\n`, method))
            .status,
      )
      expect([path, ...(await Promise.all(answers))]).toEqual([path, 200, 405, 405, 405])
    }
  })

  it.each([
    [
      'a header that names another method',
      'POST /eldr/dashboard',
      'X-HTTP-Method-Override: GET\r\nX-HTTP-Method: GET\r\nX-Method-Override: GET\r\n',
      405,
    ],
    [
      'a header that names another path',
      'GET /health',
      'X-Original-URL: /eldr/config\r\nX-Rewrite-URL: /eldr/config\r\n',
      200,
    ],
    ['a path that is written in another way', 'GET /%65ldr/config', '', 400],
    ['a path that leads back', 'GET /health/../eldr/config', '', 400],
    ['a path in other letters', 'GET /ELDR/config', '', 404],
    ['a path with parameters', 'GET /eldr/config;/pulse', '', 401],
    ['a path that begins as an open one', 'GET /eldr/pulse/../config', '', 400],
    ['an id that is a path', 'GET /eldr/requests/..%2fconfig', '', 400],
    ['the token in the query', 'GET /eldr/config?token=sesame&access_token=sesame', '', 401],
    ['the token as a cookie', 'GET /eldr/config', 'Cookie: token=sesame\r\n', 401],
    ['the token in another scheme', 'GET /eldr/config', 'Authorization: Basic sesame\r\n', 401],
    [
      'the token after a wrong one',
      'GET /eldr/config',
      'Authorization: Bearer wrong\r\nAuthorization: Bearer sesame\r\n',
      401,
    ],
    ['two tokens in one header', 'GET /eldr/config', 'X-Api-Key: wrong\r\nX-Api-Key: sesame\r\n', 401],
    [
      'a loopback address in a header',
      'GET /eldr/config',
      'X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\n',
      401,
    ],
  ])('%s gives no access', async (_, request, headers, status) => {
    const answer = await raw(cluster, `${request} HTTP/1.1\r\n${LOCAL}${headers}\r\n`)
    expect(answer.status).toBe(status)
    expect(answer.body).not.toMatch(/adminToken|settings/)
  })

  it('the OpenAPI document contains no worker and no secret', async () => {
    const { body } = await raw(cluster, `GET /openapi.json HTTP/1.1\r\n${LOCAL}\r\n`)
    expect(body).toContain('"openapi":"3.1.0"')
    for (const secret of [
      'sesame',
      ...[...cluster.prefills, ...cluster.decodes].map(({ port }) => `:${port}`),
    ])
      expect(body).not.toContain(secret)
  })
})

describe('from localhost', () => {
  let cluster: Cluster
  beforeAll(async () => void (cluster = await startCluster({ prefill: 1, decode: 1 })))
  afterAll(() => cluster.stop())
  const put = (method: string, path: string, body: string, headers = '') =>
    raw(
      cluster,
      `${method} ${path} HTTP/1.1\r\n${LOCAL}${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    )

  it('a method override in a header or the query has no effect', async () => {
    const { id } = cluster.gateway.context.registry.views(performance.now())[0]!.spec
    const answer = await put(
      'POST',
      `/eldr/workers/${id}?_method=DELETE`,
      '',
      'X-HTTP-Method-Override: DELETE\r\n',
    )
    expect([codeOf(answer), answer.headers['allow']]).toEqual(['405 ELDR_METHOD', 'DELETE'])
    expect(cluster.gateway.context.registry.views(performance.now()).map(({ spec }) => spec.id)).toContain(id)
  })

  it.each([
    '%',
    '%f',
    '%zz',
    '%ff',
    '%00',
    '%0d%0a',
    '%c0%ae',
    '%u0041',
    '%25',
    '%20',
    'a%',
    'a'.repeat(129),
    'a'.repeat(12_000),
    '%41'.repeat(4_000),
  ])('an invalid id is not found (%#)', async id => {
    for (const [method, path] of [
      ['GET', `/eldr/requests/${id}`],
      ['DELETE', `/eldr/workers/${id}`],
      ['POST', `/eldr/workers/${id}/drain`],
    ] as const)
      expect(codeOf(await put(method, path, ''))).toBe('404 ELDR_NOT_FOUND')
  })

  it('long paths and queries are handled at once, and too long ones get 431', async () => {
    for (const [path, status] of [
      [`/eldr/${'a/'.repeat(7_000)}`, 404],
      [`/${'%'.repeat(15_000)}`, 400],
      [`/v1/${'.'.repeat(15_000)}%`, 400],
      [`/health?${'a=b&'.repeat(3_500)}`, 200],
      [`/eldr/decisions?limit=${'9'.repeat(15_000)}`, 400],
      [`/eldr/decisions?${'limit=1&'.repeat(1_800)}`, 200],
      [`/health?${'a'.repeat(20_000)}`, 431],
    ] as const) {
      const answer = await raw(cluster, `GET ${path} HTTP/1.1\r\n${LOCAL}\r\n`)
      expect([path.slice(0, 20), answer.status]).toEqual([path.slice(0, 20), status])
    }
  })

  it('contradicting lengths are refused, and the bytes after them are not taken for a request', async () => {
    for (const headers of [
      'Content-Length: 0\r\nContent-Length: 40',
      'Content-Length: 0, 40',
      'Content-Length: +0',
      'Content-Length: 0x0',
      'Content-Length: -1',
      'Content-Length: 0\r\nTransfer-Encoding: chunked',
    ]) {
      const client = new RawClient(cluster.url).send(
        `POST /eldr/refit HTTP/1.1\r\n${LOCAL}${headers}\r\n\r\nDELETE /eldr/workers/a HTTP/1.1\r\n${LOCAL}\r\n`,
      )
      expect((await client.toEnd()).map(({ status }) => status)).toEqual([400])
    }
  })

  it('invalid bodies are refused: __proto__ keys, deep nesting, another encoding', async () => {
    for (const body of [
      '{"__proto__":{"policy":"jsq"}}',
      '{"constructor":1}',
      '{"toString":1}',
      '['.repeat(60_000),
      `{"policy":${'['.repeat(30_000)}${']'.repeat(30_000)}}`,
      '{"policy":"jsq"}{}',
      '{"policy":NaN}',
    ])
      expect([body.slice(0, 20), codeOf(await put('PUT', '/eldr/policy', body))]).toEqual([
        body.slice(0, 20),
        '400 ELDR_BAD_REQUEST',
      ])
    expect(codeOf(await put('PUT', '/eldr/policy', '{"policy":"jsq"}', 'Content-Encoding: gzip\r\n'))).toBe(
      '400 ELDR_BAD_REQUEST',
    )
  })

  it('a path that is not a regular file is refused as an artifact at once', async () => {
    const pipe = join(folder.path, 'pipe')
    execFileSync('mkfifo', [pipe])
    for (const path of [
      pipe,
      folder.path,
      '/dev/zero',
      '/dev/null',
      '/proc/self/mem',
      join(folder.path, 'nothing'),
    ]) {
      const answer = await put(
        'POST',
        '/eldr/artifact',
        JSON.stringify({ path }),
        'Content-Type: application/json\r\n',
      )
      expect([path, codeOf(answer)]).toEqual([path, '422 ELDR_ARTIFACT_BAD'])
    }
  })

  it('the name of an unknown field is cut and escaped in the error', async () => {
    const name = `<script>${'a'.repeat(1_000)}`
    const answer = await put('PUT', '/eldr/policy', JSON.stringify({ [name]: 1 }))
    expect(answer.headers['content-type']).toBe('application/json')
    expect(answer.body.length).toBeLessThan(400)
  })
})
