/**
 * Parses the head of a worker's response. It is strict, although workers are trusted: a proxy that guesses
 * what a head means allows response splitting.
 */

/**
 * Only the headers that the gateway uses, with lower-case names. The first of a repeated header wins;
 * Connection values are joined.
 */
export type ReplyHeaders = Readonly<Record<string, string>>

/** How the end of the body is found. A number is the content length. */
export type Framing = number | 'chunked' | 'until_close'

export interface ReplyHead {
  readonly status: number
  readonly headers: ReplyHeaders
  readonly framing: Framing
  /** Whether the connection can be used again after the body. */
  readonly keepAlive: boolean
}

export type ReadHead = { readonly kind: 'ok'; readonly head: ReplyHead } | InvalidHead
export interface InvalidHead {
  readonly kind: 'invalid'
  readonly why: string
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?(?=\r\n|$)/
const LINES = /^(?:\r\n[!#$%&'*+\-.^_`|~\w]+:[\t\x20-\x7e\x80-\xff]*)*$/
const KNOWN = new Set([
  'content-type',
  'content-length',
  'content-encoding',
  'transfer-encoding',
  'connection',
  'allow',
  'x-eldr-sampling',
])

/** `text`: the head without the empty line that ends it. */
export function readReplyHead(text: string): ReadHead {
  const line = STATUS_LINE.exec(text)
  if (line === null) return invalid('not an HTTP/1 response')
  const lines = text.slice(line[0].length)
  if (!LINES.test(lines)) return invalid('malformed header')
  const headers: Record<string, string> = {}
  for (let start = 2; start < lines.length;) {
    const next = lines.indexOf('\r\n', start)
    const end = next < 0 ? lines.length : next
    const colon = lines.indexOf(':', start)
    const name = lines.slice(start, colon).toLowerCase()
    if (KNOWN.has(name)) {
      const value = lines.slice(colon + 1, end).trim()
      if (headers[name] === undefined) headers[name] = value
      else if (name === 'connection') headers[name] += `, ${value}`
      else if (name === 'content-length' || name === 'transfer-encoding') return invalid(`duplicate ${name}`)
    }
    start = end + 2
  }
  const status = Number(line[2])
  const framing = framingOf(status, headers)
  if (typeof framing === 'object') return framing
  const connection = headers['connection']?.toLowerCase() ?? ''
  const asked = line[1] === '1' ? !/\bclose\b/.test(connection) : /\bkeep-alive\b/.test(connection)
  return { kind: 'ok', head: { status, headers, framing, keepAlive: asked && framing !== 'until_close' } }
}

const invalid = (why: string): InvalidHead => ({ kind: 'invalid', why })

function framingOf(status: number, headers: ReplyHeaders): Framing | InvalidHead {
  const coding = headers['transfer-encoding']
  const length = headers['content-length']
  if (status < 200 || status === 204 || status === 304) return 0
  if (coding !== undefined) {
    if (length !== undefined) return invalid('both content-length and transfer-encoding')
    return coding.toLowerCase() === 'chunked'
      ? 'chunked'
      : invalid(`unsupported transfer-encoding: ${coding}`)
  }
  if (length === undefined) return 'until_close'
  return /^\d{1,15}$/.test(length) ? Number(length) : invalid(`invalid content-length: ${length}`)
}
