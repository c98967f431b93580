import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { ReplyHead } from './reply-head.ts'
import { ReplyReader, type ReplyTarget } from './reply-reader.ts'

interface Seen {
  heads: ReplyHead[]
  body: string
  /** All frames, and the bytes in them. */
  frames: string
  framed: string
  ends: number
  problem: string | undefined
  endsWithConnection: boolean
}

function read(text: string, cuts: readonly number[] = []): Seen {
  const bytes = Buffer.from(text, 'latin1')
  const offsets = [...new Set([0, ...cuts.map(cut => cut % (bytes.length + 1)), bytes.length])].toSorted(
    (a, b) => a - b,
  )
  const reader = new ReplyReader()
  const seen: Seen = {
    heads: [],
    body: '',
    frames: '',
    framed: '',
    ends: 0,
    problem: undefined,
    endsWithConnection: false,
  }
  const to: ReplyTarget = {
    onHead: head => seen.heads.push(head),
    onBody(chunk, frame) {
      expect(chunk.length).toBeGreaterThan(0)
      seen.body += chunk.toString('latin1')
      if (frame === undefined) return
      seen.frames += frame.toString('latin1')
      seen.framed += chunk.toString('latin1')
    },
    onBodyEnd: () => seen.ends++,
  }
  for (let at = 1; at < offsets.length && seen.problem === undefined; at++)
    if (!reader.push(bytes.subarray(offsets[at - 1], offsets[at]), to)) seen.problem = reader.problem
  seen.endsWithConnection = reader.endsWithConnection
  return seen
}

const HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nServer: uvicorn\r\n'
const CHUNKED = `${HEAD}Transfer-Encoding: chunked\r\n\r\n`
const chunk = (text: string, extension = '') => `${text.length.toString(16)}${extension}\r\n${text}\r\n`
const texts = fc.array(
  fc.string({ unit: fc.constantFrom('a', '\r', '\n', '0', ';', '\xff'), minLength: 1, maxLength: 40 }),
  {
    maxLength: 8,
  },
)
const cuts = fc.array(fc.nat(), { maxLength: 12 })

describe('a response', () => {
  it('in chunks parses the same however the bytes are split, and its frames are the original bytes', () => {
    fc.assert(
      fc.property(texts, cuts, fc.boolean(), (parts, splits, trailer) => {
        const text = `${CHUNKED}${parts.map(part => chunk(part)).join('')}0\r\n${trailer ? 'X-Sum: 1\r\n' : ''}\r\n`
        const seen = read(text, splits)
        expect(seen).toMatchObject({ body: parts.join(''), ends: 1, problem: undefined })
        expect(seen.heads).toMatchObject([{ status: 200, framing: 'chunked', keepAlive: true }])
        expect(unframed(seen.frames)).toBe(seen.framed)
        expect(read(text).frames).toBe(parts.map(part => chunk(part)).join(''))
      }),
    )
  })

  it('with a content length parses the same however the bytes are split', () => {
    fc.assert(
      fc.property(texts, cuts, (parts, splits) => {
        const body = parts.join('')
        const seen = read(`${HEAD}content-length: ${body.length}\r\n\r\n${body}`, splits)
        expect(seen).toMatchObject({ body, ends: 1, problem: undefined, endsWithConnection: false })
      }),
    )
  })

  it('without a length ends with its connection, which is not reused', () => {
    const seen = read(`${HEAD}\r\nall that comes`, [90])
    expect(seen).toMatchObject({ body: 'all that comes', ends: 0, endsWithConnection: true })
    expect(seen.heads[0]).toMatchObject({ framing: 'until_close', keepAlive: false })
  })

  it('without a body ends with its head', () => {
    for (const status of [204, 304])
      expect(read(`HTTP/1.1 ${status} x\r\n\r\n`)).toMatchObject({ ends: 1, body: '' })
    expect(read(`${HEAD}content-length: 0\r\n\r\n`)).toMatchObject({ ends: 1, body: '' })
  })

  it('follows informational responses', () => {
    const seen = read(
      `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n${HEAD}content-length: 2\r\n\r\nok`,
      [10, 40],
    )
    expect(seen).toMatchObject({ body: 'ok', ends: 1 })
    expect(seen.heads.map(({ status }) => status)).toEqual([200])
  })

  it('with chunk extensions is parsed, and its frames are not forwarded', () => {
    expect(read(`${CHUNKED}${chunk('abc', ';name=value')}${chunk('de', ' ')}0;x\r\n\r\n`)).toMatchObject({
      body: 'abcde',
      frames: '',
      ends: 1,
    })
  })

  it('says whether its connection can be reused', () => {
    const kept = (version: string, connection: string) =>
      read(`HTTP/1.${version} 200 OK\r\n${connection}content-length: 0\r\n\r\n`).heads[0]!.keepAlive
    expect([
      kept('1', ''),
      kept('1', 'Connection: Close\r\n'),
      kept('0', ''),
      kept('0', 'connection: keep-alive\r\n'),
    ]).toEqual([true, false, false, true])
  })

  it('respects both of two Connection headers', () => {
    const head = 'HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nconnection: close\r\ncontent-length: 0\r\n\r\n'
    expect(read(head).heads[0]).toMatchObject({ keepAlive: false })
  })

  it('keeps the first of a repeated header', () => {
    const { headers } = read(
      'HTTP/1.1 200 OK\r\nX-A:Content-Type: 3\r\nContent-Type:  1 \r\ncontent-type: 2\r\ncontent-length: 0\r\n\r\n',
    ).heads[0]!
    expect(headers).toEqual({ 'content-type': '1', 'content-length': '0' })
  })

  it('reads each head of a connection, also one of the same length as the head before', () => {
    const heads = [
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n',
      'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n',
      'HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n',
      'HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n',
    ]
    expect(new Set(heads.map(({ length }) => length)).size).toBe(1)
    const reader = new ReplyReader()
    const seen: [number, unknown, string][] = []
    for (const head of heads) {
      let read: ReplyHead | undefined
      let body = ''
      const to: ReplyTarget = {
        onHead: one => (read = one),
        onBody: chunk => (body += chunk.toString('latin1')),
        onBodyEnd: () => reader.reset(),
      }
      const length = Number(/: (\d)/.exec(head)![1])
      expect(reader.push(Buffer.from(head + 'xyz'.slice(0, length)), to)).toBe(true)
      seen.push([read!.status, read!.framing, body])
    }
    expect(seen).toEqual([
      [200, 2, 'xy'],
      [200, 3, 'xyz'],
      [503, 2, 'xy'],
      [503, 2, 'xy'],
    ])
  })
})

describe('an invalid response', () => {
  it.each([
    ['no HTTP', 'SSH-2.0-OpenSSH\r\n\r\n'],
    ['another version', 'HTTP/2.0 200 OK\r\n\r\n'],
    ['a status of two digits', 'HTTP/1.1 20 OK\r\n\r\n'],
    ['a protocol switch', 'HTTP/1.1 101 Switching\r\n\r\n'],
    ['a header without a name', `${HEAD}nothing\r\n\r\n`],
    ['a folded header', `${HEAD}a: b\r\n c: d\r\n\r\n`],
    ['a space before the colon', `${HEAD}Content-Length : 3\r\n\r\n`],
    ['a bare LF in a value', `${HEAD}a: b\nc: d\r\n\r\n`],
    ['two lengths', `${HEAD}content-length: 1\r\ncontent-length: 1\r\n\r\na`],
    ['a length and chunked encoding', `${CHUNKED.slice(0, -2)}content-length: 3\r\n\r\n`],
    ['an invalid length', `${HEAD}content-length: +3\r\n\r\n`],
    ['another coding', `${HEAD}transfer-encoding: gzip, chunked\r\n\r\n`],
    ['a chunk without a size', `${CHUNKED}\r\nabc\r\n`],
    ['a chunk with an invalid size', `${CHUNKED}xyz\r\nabc\r\n`],
    ['a negative size', `${CHUNKED}-1\r\nabc\r\n`],
    ['a size that is too large', `${CHUNKED}fffffffff\r\nabc\r\n`],
    ['a chunk longer than its size', `${CHUNKED}2\r\nabc\r\n`],
    ['a size that ends in a bare LF', `${CHUNKED}2\nab\r\n`],
    ['an extension that ends in a bare LF', `${CHUNKED}2;a\nab\r\n`],
    ['bytes after the end', `${HEAD}content-length: 2\r\n\r\nabHTTP/1.1 200 OK`],
    ['an endless head', `${HEAD}${'a: b\r\n'.repeat(20_000)}`],
    ['an endless extension', `${CHUNKED}2;${'a'.repeat(10_000)}`],
    ['an endless trailer', `${CHUNKED}0\r\n${'a: b\r\n'.repeat(2_000)}`],
  ])('is detected, however the bytes are split: %s', (_, text) => {
    fc.assert(
      fc.property(cuts, splits => {
        expect(read(text, splits).problem).toEqual(expect.any(String))
      }),
      { numRuns: 20 },
    )
  })

  it('gives the same result for random bytes, however they are split', () => {
    const pieces = fc.array(
      fc.constantFrom(
        'HTTP/1.1 200 OK',
        '\r\n',
        '\r',
        '\n',
        ':',
        'a',
        '5',
        '0',
        ';',
        CHUNKED,
        'transfer-encoding: chunked',
      ),
    )
    fc.assert(
      fc.property(pieces, cuts, (list, splits) => {
        const [whole, cut] = [read(list.join('')), read(list.join(''), splits)]
        expect([cut.body, cut.ends, cut.problem]).toEqual([whole.body, whole.ends, whole.problem])
      }),
      { numRuns: 500 },
    )
  })
})

/** Reference implementation: the bytes in a list of frames. */
function unframed(frames: string): string {
  let body = ''
  for (let rest = frames; rest !== '';) {
    const line = rest.indexOf('\r\n')
    const size = Number.parseInt(rest.slice(0, line), 16)
    body += rest.slice(line + 2, line + 2 + size)
    rest = rest.slice(line + 4 + size)
  }
  return body
}
