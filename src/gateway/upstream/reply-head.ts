/** The head of a worker's answer. Workers are ours, but a proxy that guesses what a head means lets one answer pass for two. */

/** Names in lower case. Of a header that comes twice the first counts. */
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

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: |$)/
const NAME = /^[!#$%&'*+\-.^_`|~\w]+$/
// oxlint-disable-next-line no-control-regex -- what must not be in a value is control characters
const WRONG_IN_VALUE = /[\0-\x08\x0a-\x1f\x7f]/

/** @param text of the head without the empty line that ends it. @returns what is wrong with it, when something is. */
export function readReplyHead(text: string): ReplyHead | string {
  let lineEnd = text.indexOf('\r\n')
  const line = STATUS_LINE.exec(lineEnd < 0 ? text : text.slice(0, lineEnd))
  if (line === null) return 'an answer that is not HTTP/1'
  const headers: Record<string, string> = Object.create(null) as Record<string, string>
  while (lineEnd >= 0) {
    const start = lineEnd + 2
    lineEnd = text.indexOf('\r\n', start)
    const end = lineEnd < 0 ? text.length : lineEnd
    const colon = text.indexOf(':', start)
    if (colon < 0 || colon >= end) return 'a header without a name'
    const name = text.slice(start, colon).toLowerCase()
    const value = text.slice(colon + 1, end).trim()
    if (!NAME.test(name) || WRONG_IN_VALUE.test(value)) return 'a header that is none'
    if (headers[name] === undefined) headers[name] = value
    else if (name === 'content-length' || name === 'transfer-encoding') return `${name} twice`
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
