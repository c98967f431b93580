/** The head of a worker's answer. Workers are ours, but a proxy that guesses what a head means lets one answer pass for two. */

/** The few that mean something here, names in lower case. Of one that comes twice the first counts, of Connection both. */
export type ReplyHeaders = Readonly<Record<string, string>>

/** How the end of the body is known; a number is its length. */
export type Framing = number | 'chunked' | 'until_close'

export interface ReplyHead {
  readonly status: number
  readonly headers: ReplyHeaders
  readonly framing: Framing
  /** Whether the connection can be used again after the body. */
  readonly keepAlive: boolean
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?(?=\r\n|$)/
/** Lines of a name and a value each, and nothing else. */
const LINES = /^(?:\r\n[!#$%&'*+\-.^_`|~\w]+:[\t\x20-\x7e\x80-\xff]*)*$/
/** Those that say something to a gateway. */
const KNOWN = new Set([
  'content-type',
  'content-length',
  'content-encoding',
  'transfer-encoding',
  'connection',
  'allow',
])

/** @param text of the head without the empty line that ends it. @returns what is wrong with it, when something is. */
export function readReplyHead(text: string): ReplyHead | string {
  const line = STATUS_LINE.exec(text)
  if (line === null) return 'an answer that is not HTTP/1'
  const lines = text.slice(line[0].length)
  if (!LINES.test(lines)) return 'a header that is none'
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
      else if (name === 'content-length' || name === 'transfer-encoding') return `${name} twice`
    }
    start = end + 2
  }
  const status = Number(line[2])
  const framing = framingOf(status, headers)
  if (typeof framing === 'object') return framing.wrong
  const connection = headers['connection']?.toLowerCase() ?? ''
  const wished = line[1] === '1' ? !/\bclose\b/.test(connection) : /\bkeep-alive\b/.test(connection)
  return { status, headers, framing, keepAlive: wished && framing !== 'until_close' }
}

function framingOf(status: number, headers: ReplyHeaders): Framing | { readonly wrong: string } {
  const coding = headers['transfer-encoding']
  const length = headers['content-length']
  if (status < 200 || status === 204 || status === 304) return 0
  if (coding !== undefined) {
    if (length !== undefined) return { wrong: 'content-length beside transfer-encoding' }
    return coding.toLowerCase() === 'chunked' ? 'chunked' : { wrong: `transfer-encoding ${coding}` }
  }
  if (length === undefined) return 'until_close'
  return /^\d{1,15}$/.test(length) ? Number(length) : { wrong: `content-length ${length}` }
}
