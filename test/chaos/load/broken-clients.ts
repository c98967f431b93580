/** Clients that do everything wrong: invalid bodies and heads, connections left open or closed early. */
import { connect, type Socket } from 'node:net'
import { connect as tlsConnect } from 'node:tls'

export const BROKEN_KINDS = [
  'not-json',
  'deep-json',
  'wrong-types',
  'bad-utf8',
  'too-large',
  'half-body',
  'half-head',
  'no-http',
  'never-reads',
  'two-lengths',
] as const
export type BrokenKind = (typeof BROKEN_KINDS)[number]

export interface BrokenResult {
  /** Of the response, if there was one. */
  readonly status?: number
}

/** Connections of those that leave something open are held this long. */
const HELD_MS = 4_000
const LARGE = 'x'.repeat(300_000)
/** A stream that is never read, long enough to fill buffers. */
const LONG_STREAM =
  '{"prompt":"Never read","max_tokens":1500,"ignore_eos":true,"stream":true,"return_token_ids":true}'

/** Kinds that must be refused, whatever their gateway's workers do. */
export const MUST_REFUSE: ReadonlySet<BrokenKind> = new Set([
  'not-json',
  'wrong-types',
  'bad-utf8',
  'too-large',
  'no-http',
  'two-lengths',
])

export function sendBroken(kind: BrokenKind, url: string): Promise<BrokenResult> {
  const { hostname, port, protocol } = new URL(url)
  const place = { host: hostname, port: Number(port) }
  const socket: Socket = protocol === 'https:' ? tlsConnect(place) : connect(place)
  return new Promise(resolve => {
    let head = ''
    const end = () => {
      clearTimeout(timer)
      socket.destroy()
      const status = /^HTTP\/1\.1 (\d+)/.exec(head)?.[1]
      resolve({ status: status === undefined ? undefined : Number(status) })
    }
    const timer = setTimeout(end, HELD_MS)
    socket.on('error', end).on('close', end)
    if (kind === 'never-reads') socket.pause()
    else
      socket.on('data', (chunk: Buffer) => {
        head += chunk.toString('latin1')
        if (head.includes('\r\n\r\n')) end()
      })
    socket.once(protocol === 'https:' ? 'secureConnect' : 'connect', () => socket.write(bytesOf(kind)))
    if (kind === 'half-body') socket.once('connect', () => setTimeout(end, HELD_MS / 8))
  })
}

function bytesOf(kind: BrokenKind): Buffer | string {
  switch (kind) {
    case 'not-json':
      return post('{"prompt":"never closed')
    case 'deep-json':
      return post(`{"prompt":"a","x":${'['.repeat(20_000)}${']'.repeat(20_000)}}`)
    case 'wrong-types':
      return post('{"prompt":{"a":1},"n":"many","max_tokens":-1}')
    case 'bad-utf8':
      return Buffer.concat([
        Buffer.from(head(22)),
        Buffer.from('{"prompt":"\xff\xfe\xfd",', 'latin1'),
        Buffer.from('"n":'),
      ])
    case 'too-large':
      return post(`{"prompt":"${LARGE}"}`)
    case 'half-body':
      return `${head(1_000)}{"prompt":"breaks off`
    case 'half-head':
      return 'POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Le'
    case 'no-http':
      return '\x16\x03\x01 this is not HTTP\r\n\r\n'
    case 'never-reads':
      return post(LONG_STREAM)
    case 'two-lengths':
      return 'POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}'
  }
}

const head = (length: number) =>
  `POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`

function post(body: string): string {
  return `${head(Buffer.byteLength(body))}${body}`
}
