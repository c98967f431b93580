// A minimal HTTP/1.1 request parser: a worker in a benchmark must cost less than what it measures, and
// node:http costs more than most routers. Bytes are pushed as they arrive and requests are pulled after the
// previous response, so pipelined requests wait here. Framing that a gateway must never send (two lengths, a
// length with chunks) is refused.
import { ReceivedRequest } from './received-request.mjs'

const HEAD_END = Buffer.from('\r\n\r\n')
const MAX_HEAD_BYTES = 64 * 1024
const NOTHING = Buffer.alloc(0)

/** The peer violated HTTP/1.1 (RFC 9112). */
export class BadFraming extends Error {}

export class RequestReader {
  /**
   * Unread bytes are bytes[from … to); bytes may be a chunk of the socket itself, which is never written to.
   * @type {Buffer}
   */
  #bytes = NOTHING
  #from = 0
  #to = 0
  #owned = false
  /** Head of the request whose body is still coming. @type {ReturnType<typeof readHead> | undefined} */
  #head
  /** Chunks of a chunked body so far. @type {Buffer[]} */
  #pieces = []

  /** @param {Buffer} chunk */
  push(chunk) {
    const unread = this.#to - this.#from
    if (unread === 0) {
      this.#bytes = chunk
      this.#from = 0
      this.#to = chunk.length
      this.#owned = false
      return
    }
    if (!this.#owned || this.#to + chunk.length > this.#bytes.length) {
      // Doubled, so that a long body is copied only a few times.
      const grown = Buffer.allocUnsafe(2 * (unread + chunk.length))
      this.#bytes.copy(grown, 0, this.#from, this.#to)
      this.#bytes = grown
      this.#from = 0
      this.#to = unread
      this.#owned = true
    }
    chunk.copy(this.#bytes, this.#to)
    this.#to += chunk.length
  }

  /** True once per request that expects `100 Continue` before it sends its body. */
  takeExpectation() {
    if (this.#head === undefined || !this.#head.expectsContinue) return false
    this.#head.expectsContinue = false
    return true
  }

  /**
   * The next complete request, or undefined if more bytes are needed.
   * @returns {ReceivedRequest | undefined}
   */
  read() {
    this.#head ??= this.#readHead()
    const head = this.#head
    if (head === undefined) return undefined
    const body = head.chunked ? this.#readChunks() : this.#readLength(head.length)
    if (body === undefined) return undefined
    this.#head = undefined
    return new ReceivedRequest(head, body)
  }

  #readHead() {
    while (this.#from + 1 < this.#to && this.#bytes[this.#from] === 13 && this.#bytes[this.#from + 1] === 10)
      this.#from += 2
    const end = this.#indexOf(HEAD_END)
    if (end < 0) {
      if (this.#to - this.#from > MAX_HEAD_BYTES) throw new BadFraming('the head is too long')
      return undefined
    }
    const head = readHead(this.#bytes.toString('latin1', this.#from, end))
    this.#from = end + 4
    return head
  }

  /** @param {number} length */
  #readLength(length) {
    if (this.#to - this.#from < length) return undefined
    return this.#take(length)
  }

  #readChunks() {
    for (;;) {
      const end = this.#indexOf('\r\n')
      if (end < 0) return undefined
      const line = this.#bytes.toString('latin1', this.#from, end)
      const size = /^([\da-f]{1,8})[ \t]*(?:;|$)/i.exec(line)
      if (size === null) throw new BadFraming(`chunk size ${JSON.stringify(line.slice(0, 40))}`)
      const length = Number.parseInt(size[1], 16)
      if (length === 0) return this.#endOfChunks(end + 2)
      if (this.#to < end + 2 + length + 2) return undefined
      this.#from = end + 2
      this.#pieces.push(this.#take(length))
      if (this.#bytes[this.#from] !== 13 || this.#bytes[this.#from + 1] !== 10)
        throw new BadFraming('a chunk is longer than its size')
      this.#from += 2
    }
  }

  /** Trailers are skipped. @param {number} at the byte after the size line of the last chunk */
  #endOfChunks(at) {
    let end = at
    if (this.#bytes[at] !== 13 || this.#bytes[at + 1] !== 10) {
      const trailers = this.#bytes.subarray(at, this.#to).indexOf(HEAD_END)
      if (trailers < 0) return undefined
      end = at + trailers + 2
    }
    if (end + 2 > this.#to) return undefined
    this.#from = end + 2
    const body = this.#pieces.length === 1 ? this.#pieces[0] : Buffer.concat(this.#pieces)
    this.#pieces = []
    return body
  }

  /** The next bytes, copied if later bytes would overwrite them. @param {number} length */
  #take(length) {
    const part = this.#bytes.subarray(this.#from, this.#from + length)
    this.#from += length
    return this.#owned ? Buffer.from(part) : part
  }

  /** @param {Buffer | string} what */
  #indexOf(what) {
    const at = this.#bytes.indexOf(what, this.#from, 'latin1')
    return at < 0 || at + what.length > this.#to ? -1 : at
  }
}

/** @param {string} text request line and header lines, without the blank line */
function readHead(text) {
  const line = /^([!#$%&'*+.^_`|~\w-]+) (\S+) HTTP\/1\.([01])(?:\r\n|$)/.exec(text)
  if (line === null) throw new BadFraming(`request line ${JSON.stringify(text.slice(0, 60))}`)
  const lengths = text.match(/\r\ncontent-length:[^\r]*/gi)
  const chunked = /\r\ntransfer-encoding:[^\r]*\bchunked[ \t]*(?:\r|$)/i.test(text)
  if (lengths !== null && (lengths.length > 1 || chunked)) throw new BadFraming('conflicting body lengths')
  const length = lengths === null ? 0 : Number(lengths[0].slice(17).trim())
  if (!Number.isSafeInteger(length) || length < 0) throw new BadFraming(`${lengths?.[0].trim()}`)
  return {
    method: /** @type {string} */ (line[1]),
    target: /** @type {string} */ (line[2]),
    keepAlive:
      line[3] === '1'
        ? !/\r\nconnection:[^\r]*\bclose\b/i.test(text)
        : /\r\nconnection:[^\r]*\bkeep-alive\b/i.test(text),
    expectsContinue: /\r\nexpect:[ \t]*100-continue/i.test(text),
    lines: text,
    length,
    chunked,
  }
}
