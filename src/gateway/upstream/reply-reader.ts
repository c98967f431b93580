/**
 * Incremental parser for the responses on one connection. It passes chunks of the body on together with their
 * framing, so that a stream can be forwarded unchanged. Nothing is copied, except a head that arrives in
 * several pieces.
 */
import { type ReadHead, type ReplyHead, readReplyHead } from './reply-head.ts'

export interface ReplyTarget {
  onHead(head: ReplyHead): void
  /** `frame`: the chunk with its size line and line end, if all of it arrived in one piece. */
  onBody(chunk: Buffer, frame: Buffer | undefined): void
  onBodyEnd(): void
}

/** Parser states. */
const [HEAD, BODY, SIZE, EXTENSION, SIZE_END, CHUNK, CHUNK_END, TRAILER, DONE] = [0, 1, 2, 3, 4, 5, 6, 7, 8]
const [LF, CR, SEMICOLON, SPACE, TAB] = [0x0a, 0x0d, 0x3b, 0x20, 0x09]
const HEAD_END = Buffer.from('\r\n\r\n')
const MAX_HEAD_BYTES = 65_536
const MAX_SIZE_DIGITS = 8
/** Limit for chunk extensions, and for the trailer. */
const MAX_EXTRA_BYTES = 8_192
const NOTHING = Buffer.alloc(0)
/** Returned in place of the next offset; the reason is in `#problem`. */
const INVALID = -1

export class ReplyReader {
  #state = HEAD
  /** First part of a head that is not complete yet. */
  #partialHead: Buffer = NOTHING
  /** Remaining bytes of the body or the chunk. */
  #left = 0
  #digits = 0
  /** Length of the chunk extension or the trailer so far. */
  #extraBytes = 0
  #problem = ''
  /**
   * Offset of the current chunk's frame in these bytes; −1 if it began in earlier bytes or cannot be
   * forwarded.
   */
  #frameStart = -1
  /** The head before this one. */
  #last: { readonly text: string; readonly read: ReadHead } | undefined

  /** Prepares for the next response on the connection. */
  reset(): void {
    this.#state = HEAD
    this.#partialHead = NOTHING
  }

  /** Ignores all further bytes, including the rest of those being read. */
  stop(): void {
    this.#state = DONE
  }

  /** True if the response ends when the connection closes. */
  get endsWithConnection(): boolean {
    return this.#state === BODY && this.#left === Infinity
  }

  /** Why `push` returned false. */
  get problem(): string {
    return this.#problem
  }

  /** Returns false if the bytes are not a valid response. */
  push(bytes: Buffer, to: ReplyTarget): boolean {
    let at = 0
    this.#frameStart = -1
    while (at < bytes.length) {
      if (this.#state === CHUNK) at = this.#chunk(bytes, at, to)
      else if (this.#state === SIZE) at = this.#size(bytes, at)
      else if (this.#state === HEAD) at = this.#head(bytes, at, to)
      else if (this.#state === BODY) at = this.#body(bytes, at, to)
      else if (this.#state === DONE) at = this.#invalid('bytes after the response')
      else at = this.#between(bytes, at, to)
      if (at === INVALID) return false
    }
    return true
  }

  #invalid(why: string): typeof INVALID {
    this.#problem = why
    return INVALID
  }

  #head(bytes: Buffer, at: number, to: ReplyTarget): number {
    const partial = this.#partialHead
    const all = partial.length === 0 ? bytes.subarray(at) : Buffer.concat([partial, bytes.subarray(at)])
    const end = all.indexOf(HEAD_END)
    if (end > MAX_HEAD_BYTES || (end < 0 && all.length > MAX_HEAD_BYTES))
      return this.#invalid('head too large')
    if (end < 0) {
      this.#partialHead = all
      return bytes.length
    }
    this.#partialHead = NOTHING
    const text = all.toString('latin1', 0, end)
    // A worker often sends the same head again.
    const read = text === this.#last?.text ? this.#last.read : readReplyHead(text)
    if (read.kind === 'invalid') return this.#invalid(read.why)
    if (this.#last?.read !== read) this.#last = { text, read }
    const { head } = read
    const after = at + end + HEAD_END.length - partial.length
    if (head.status === 101) return this.#invalid('unexpected protocol switch')
    if (head.status < 200) return after // informational: the response follows
    this.#left = head.framing === 'chunked' ? 0 : head.framing === 'until_close' ? Infinity : head.framing
    this.#state = head.framing === 'chunked' ? SIZE : BODY
    this.#digits = 0
    to.onHead(head)
    if (this.#state === BODY && this.#left === 0) this.#end(to)
    return after
  }

  #body(bytes: Buffer, at: number, to: ReplyTarget): number {
    const end = Math.min(bytes.length, at + this.#left)
    this.#left -= end - at
    to.onBody(at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end), undefined)
    if (this.#left === 0 && this.#state === BODY) this.#end(to)
    return end
  }

  #size(bytes: Buffer, from: number): number {
    let at = from
    if (this.#digits === 0) {
      this.#frameStart = from
      this.#left = 0
    }
    for (; at < bytes.length; at++) {
      const byte = bytes[at]!
      const digit = byte <= 0x39 ? byte - 0x30 : (byte | 0x20) - 0x57
      if (digit < 0 || digit > 15 || (digit < 10 && byte > 0x39)) break
      if (++this.#digits > MAX_SIZE_DIGITS) return this.#invalid('chunk too large')
      this.#left = this.#left * 16 + digit
    }
    if (at === bytes.length) return at
    if (this.#digits === 0) return this.#invalid('chunk without a size')
    const byte = bytes[at]!
    // Fast path: the line end has almost always arrived too.
    if (byte === CR && bytes[at + 1] === LF) {
      this.#sizeRead()
      return at + 2
    }
    if (byte === CR) this.#state = SIZE_END
    else if (byte === SEMICOLON || byte === SPACE || byte === TAB) {
      this.#frameStart = -1
      this.#extraBytes = 0
      this.#state = EXTENSION
    } else return this.#invalid('chunk without a size')
    return at + 1
  }

  #sizeRead(): void {
    this.#digits = 0
    this.#extraBytes = 0
    this.#state = this.#left === 0 ? TRAILER : CHUNK
  }

  #chunk(bytes: Buffer, at: number, to: ReplyTarget): number {
    const end = at + this.#left
    if (end + 2 <= bytes.length && bytes[end] === CR && bytes[end + 1] === LF) {
      this.#state = SIZE
      to.onBody(
        bytes.subarray(at, end),
        this.#frameStart < 0 ? undefined : bytes.subarray(this.#frameStart, end + 2),
      )
      return end + 2
    }
    const upTo = Math.min(end, bytes.length)
    this.#left -= upTo - at
    if (this.#left === 0) this.#state = CHUNK_END
    this.#frameStart = -1
    if (upTo > at) to.onBody(bytes.subarray(at, upTo), undefined)
    return upTo
  }

  /**
   * Reads one byte between or after chunks, where the framing arrived in pieces or has extensions or a
   * trailer.
   */
  #between(bytes: Buffer, at: number, to: ReplyTarget): number {
    const byte = bytes[at]!
    if (this.#state === SIZE_END) {
      if (byte !== LF) return this.#invalid('chunk size without a line end')
      this.#sizeRead()
    } else if (this.#state === CHUNK_END) {
      if (byte === LF && this.#extraBytes === 1) this.#state = SIZE
      else if (byte !== CR || this.#extraBytes++ > 0) return this.#invalid('chunk longer than its size')
    } else if (++this.#extraBytes > MAX_EXTRA_BYTES)
      return this.#invalid('chunk extension or trailer too large')
    else if (this.#state === EXTENSION) {
      if (byte === CR) this.#state = SIZE_END
      else if (byte === LF) return this.#invalid('bare LF in a chunk extension')
    } else if (byte === LF) {
      if (this.#left === 0) this.#end(to)
      this.#left = 0
    } else if (byte !== CR) this.#left++ // length of this trailer line
    return at + 1
  }

  #end(to: ReplyTarget): void {
    this.#state = DONE
    to.onBodyEnd()
  }
}
