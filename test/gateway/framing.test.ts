/** Request framing: ambiguous bytes on raw sockets, and bodies of all sizes and kinds. */
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
const GET = 'GET /version HTTP/1.1\r\nHost: gateway\r\n\r\n'
const client = () => new RawClient(cluster.url)
const generations = () =>
  [...cluster.prefills, ...cluster.decodes].reduce(
    (sum, { counters }) => sum + counters.prefill + counters.decode,
    0,
  )

describe('an ambiguous request', () => {
  const HEAD = 'POST /v1/completions HTTP/1.1\r\nHost: gateway\r\n'
  const BODY = `${PROMPT.length.toString(16)}\r\n${PROMPT}\r\n0\r\n\r\n`
  const TE = 'Transfer-Encoding: chunked\r\n'
  it.each([
    ['with content-length and chunks', `${HEAD}Content-Length: 4\r\n${TE}\r\n${BODY}`],
    ['with chunks and content-length', `${HEAD}${TE}Content-Length: 4\r\n\r\n${BODY}`],
    ['with two lengths', `${HEAD}Content-Length: 33\r\nContent-Length: 4\r\n\r\n${PROMPT}`],
    ['with the same length twice', `${HEAD}Content-Length: 33\r\nContent-Length: 33\r\n\r\n${PROMPT}`],
    ['with a list of lengths', `${HEAD}Content-Length: 33, 33\r\n\r\n${PROMPT}`],
    ['with a signed length', `${HEAD}Content-Length: +33\r\n\r\n${PROMPT}`],
    ['with a length below 0', `${HEAD}Content-Length: -1\r\n\r\n${PROMPT}`],
    ['with a length in hexadecimal', `${HEAD}Content-Length: 0x21\r\n\r\n${PROMPT}`],
    ['with a length beyond all numbers', `${HEAD}Content-Length: 99999999999999999999999\r\n\r\n${PROMPT}`],
    ['with a blank before a colon', `${HEAD}Content-Length : 33\r\n\r\n${PROMPT}`],
    ['with a folded header', `${HEAD}X-A: b\r\n c\r\nContent-Length: 33\r\n\r\n${PROMPT}`],
    ['with chunks said in a folded header', `${HEAD}Transfer-Encoding:\r\n chunked\r\n\r\n${BODY}`],
    ['with bare line feeds', `${HEAD.replaceAll('\r', '')}Content-Length: 33\n\n${PROMPT}`],
    ['with one bare line feed', `${HEAD}X-A: b\nContent-Length: 33\r\n\r\n${PROMPT}`],
    ['with a bare carriage return', `${HEAD}X-A: b\rX-B: c\r\nContent-Length: 33\r\n\r\n${PROMPT}`],
    ['with a zero byte in a header', `${HEAD}X-A: b\0c\r\nContent-Length: 33\r\n\r\n${PROMPT}`],
    ['with a coding that is not chunked', `${HEAD}Transfer-Encoding: identity\r\n\r\n${BODY}`],
    ['with a coding that is nearly chunked', `${HEAD}Transfer-Encoding: xchunked\r\n\r\n${BODY}`],
    ['with a coding before chunked', `${HEAD}Transfer-Encoding: gzip, chunked\r\n\r\n${BODY}`],
    ['with chunked before a coding', `${HEAD}Transfer-Encoding: chunked, identity\r\n\r\n${BODY}`],
    ['with chunked twice', `${HEAD}${TE}${TE}\r\n${BODY}`],
    ['with chunks in HTTP/1.0', `${HEAD.replace('1.1', '1.0')}${TE}\r\n${BODY}`],
    ['with a chunk size that is none', `${HEAD}${TE}\r\nxyz\r\n${PROMPT}\r\n0\r\n\r\n`],
    ['with a chunk size below 0', `${HEAD}${TE}\r\n-1\r\n${PROMPT}\r\n0\r\n\r\n`],
    ['with a chunk size of 0x', `${HEAD}${TE}\r\n0x21\r\n${PROMPT}\r\n0\r\n\r\n`],
    ['with a chunk size beyond all numbers', `${HEAD}${TE}\r\nfffffffffffffffff\r\n${PROMPT}\r\n0\r\n\r\n`],
    ['with a line feed after a chunk size', `${HEAD}${TE}\r\n21\n${PROMPT}\r\n0\r\n\r\n`],
    ['with a line feed in a chunk extension', `${HEAD}${TE}\r\n21;a\nb\r\n${PROMPT}\r\n0\r\n\r\n`],
    ['with a chunk longer than its size', `${HEAD}${TE}\r\n3\r\n${PROMPT}\r\n0\r\n\r\n`],
    ['with a length among its trailers', `${HEAD}${TE}\r\n21\r\n${PROMPT}\r\n0\r\nContent-Length: 4\r\n\r\n`],
    ['with two hosts', `${HEAD}Host: other\r\nContent-Length: 33\r\n\r\n${PROMPT}`],
    ['without a host', `POST /v1/completions HTTP/1.1\r\nContent-Length: 33\r\n\r\n${PROMPT}`],
    ['in HTTP/0.9', 'GET /version\r\n\r\n'],
    ['in HTTP/1.2', 'GET /version HTTP/1.2\r\nHost: gateway\r\n\r\n'],
    ['in HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['in no HTTP at all', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n'],
  ])('%s gets 400, and the bytes after it are not served', async (_, bytes) => {
    const before = generations()
    const answers = await client()
      .send(`${bytes}${GET}${postBytes(PROMPT)}`)
      .toEnd()
    expect(answers.map(({ status }) => status)).toEqual([400])
    expect(answers[0]!.headers).toMatchObject({
      connection: 'close',
      'x-eldr-error-code': 'ELDR_BAD_REQUEST',
    })
    expect(JSON.parse(answers[0]!.body)).toMatchObject({
      error: { type: 'invalid_request_error', code: 'ELDR_BAD_REQUEST' },
    })
    expect(generations()).toBe(before)
  })
})

describe('a body', () => {
  const chunked = (path: string, body: string) =>
    `POST ${path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${body}`

  it('may be chunked, with extensions and trailers', async () => {
    const [a, b] = [PROMPT.slice(0, 10), PROMPT.slice(10)]
    const bytes = chunked(
      '/v1/completions',
      `a;name=value;quoted="a;b"\r\n${a}\r\n${b.length.toString(16).toUpperCase()}\r\n${b}\r\n000\r\nX-Checksum: 1\r\n\r\n`,
    )
    const raw = client()
    for (const part of bytes)
      await new Promise<void>(resolve => raw.socket.write(part, 'latin1', () => resolve()))
    const answers = await raw.send(GET).answers(2)
    expect(answers.map(({ status }) => status)).toEqual([200, 200])
    raw.leave()
  })

  it('with a content-length over the limit is not read, nor taken for a request', async () => {
    const before = generations()
    const bytes = `POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n${postBytes(PROMPT)}`
    const answers = await client().send(bytes).toEnd()
    expect(answers.map(({ status, headers }) => [status, headers['connection']])).toEqual([[413, 'close']])
    expect(JSON.parse(answers[0]!.body)).toMatchObject({
      error: { code: 'ELDR_BODY_TOO_LARGE', message: 'The request body is larger than 65536 bytes.' },
    })
    expect(generations()).toBe(before)
  })

  it('that exceeds the limit in chunks is refused, and the rest is not taken for a request', async () => {
    const before = generations()
    const chunk = `4000\r\n${'a'.repeat(16_384)}\r\n`
    const answers = await client()
      .send(chunked('/v1/completions', chunk.repeat(5) + postBytes(PROMPT)))
      .toEnd()
    expect(answers.map(({ status, headers }) => [status, headers['connection']])).toEqual([[413, 'close']])
    expect(generations()).toBe(before)
  })

  it('over the limit does not keep its client from reading the error', async () => {
    const raw = client().send(`POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n`)
    let sent = 0
    while (sent < 20_000_000 && !raw.socket.destroyed) {
      await new Promise<void>(resolve => raw.socket.write(Buffer.alloc(1_000_000), () => resolve()))
      sent += 1_000_000
    }
    expect(sent).toBe(20_000_000)
    expect((await raw.toEnd()).map(({ status }) => status)).toEqual([413])
  })

  it('of exactly the maximum size is accepted', async () => {
    const body = `{"prompt":"${'a'.repeat(65_536 - 28)}","max_tokens":2}`
    expect(body).toHaveLength(65_536)
    expect((await client().send(postBytes(body)).answer()).status).toBe(200)
    expect(
      (
        await client()
          .send(postBytes(`${body} `))
          .answer()
      ).status,
    ).toBe(413)
  })

  it.each([
    ['a byte order mark', Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from(PROMPT)]), '', 200],
    [
      'a form’s content type, as curl sends it',
      Buffer.from(PROMPT),
      'Content-Type: application/x-www-form-urlencoded\r\n',
      200,
    ],
    ['no content type', Buffer.from(PROMPT), '', 200],
    ['UTF-16', Buffer.from(PROMPT, 'utf16le'), 'Content-Type: application/json; charset=utf-16\r\n', 400],
    [
      'Latin-1',
      Buffer.from('{"prompt":"\xe9"}', 'latin1'),
      'Content-Type: application/json; charset=iso-8859-1\r\n',
      400,
    ],
    ['bytes that are no characters', Buffer.from('{"prompt":"\xc3\x28"}', 'latin1'), '', 400],
    ['compression', Buffer.from(PROMPT), 'Content-Encoding: gzip\r\n', 400],
    ['nothing', Buffer.alloc(0), '', 400],
    ['something after the object', Buffer.from(`${PROMPT}${PROMPT}`), '', 400],
  ])('with %s is accepted or refused by the gateway, never by a worker', async (_, body, headers, status) => {
    const before = generations()
    const raw = client().send(
      `POST /v1/completions HTTP/1.1\r\nHost: a\r\n${headers}Content-Length: ${body.length}\r\n\r\n`,
    )
    raw.socket.write(body)
    expect((await raw.answer()).status).toBe(status)
    expect(generations() - before).toBe(status === 200 ? 2 : 0)
    raw.leave()
  })
})
