/**
 * Reads answers off a connection as their bytes come. Chunks of a body are handed out together with the bytes that frame them, so that
 * a stream can go on as it came; nothing is copied but a head that was cut.
 */
import { type ReplyHead, readReplyHead } from './reply-head.ts'

export interface ReplyTarget {
  onHead(head: ReplyHead): void
  /** `frame`: the same bytes with their chunk's size before and line end behind, where all of it came in one piece. */
  onBody(chunk: Buffer, frame: Buffer | undefined): void
  onBodyEnd(): void
}

/** Where in an answer the next byte is. */
const [HEAD, BODY, SIZE, EXTENSION, SIZE_END, CHUNK, CHUNK_END, TRAILER, DONE] = [0, 1, 2, 3, 4, 5, 6, 7, 8]
const [LF, CR, SEMICOLON, SPACE, TAB] = [0x0a, 0x0d, 0x3b, 0x20, 0x09]
const HEAD_END = Buffer.from('\r\n\r\n')
const MAX_HEAD_BYTES = 65_536
const MAX_SIZE_DIGITS = 8
/** Extensions of a chunk's size, and what follows the last chunk. */
const MAX_BUFFERED_BYTES = 8_192
const NOTHING = Buffer.alloc(0)

export class ReplyReader {
  #state = HEAD
  #cutHead: Buffer = NOTHING
  /** Bytes of the body, or of the chunk, that are still to come. */
  #left = 0
  #digits = 0
  #asideBytes = 0
  /** Where the frame of the present chunk began in these bytes, or −1 when it began in others or must not be passed on. */
  #frameStart = -1

  /** The next answer of the connection may come. */
  reset(): void {
    this.#state = HEAD
    this.#cutHead = NOTHING
  }

  /** Nothing more is wanted, not even of the bytes that are just being read. */
  stop(): void {
    this.#state = DONE
  }

  /** Whether the end of the connection is the end of the answer. */
  get endsWithConnection(): boolean {
    return this.#state === BODY && this.#left === Infinity
  }

  /** @returns what is wrong with the bytes, when something is. */
  push(bytes: Buffer, to: ReplyTarget): string | undefined {
    let at = 0
    this.#frameStart = -1
    while (at < bytes.length) {
      let next: number | string
      if (this.#state === CHUNK) next = this.#chunk(bytes, at, to)
      else if (this.#state === SIZE) next = this.#size(bytes, at)
      else if (this.#state === HEAD) next = this.#head(bytes, at, to)
      else if (this.#state === BODY) next = this.#body(bytes, at, to)
      else if (this.#state === DONE) return 'bytes after the answer'
      else next = this.#between(bytes[at]!, to) ?? at + 1
      if (typeof next === 'string') return next
      at = next
    }
    return undefined
  }

  #head(bytes: Buffer, at: number, to: ReplyTarget): number | string {
    const cut = this.#cutHead
    const all = cut.length === 0 ? bytes.subarray(at) : Buffer.concat([cut, bytes.subarray(at)])
    const end = all.indexOf(HEAD_END)
    if (end > MAX_HEAD_BYTES || (end < 0 && all.length > MAX_HEAD_BYTES)) return 'a head that is too large'
    if (end < 0) {
      this.#cutHead = all
      return bytes.length
    }
    this.#cutHead = NOTHING
    const head = readReplyHead(all.toString('latin1', 0, end))
    if (typeof head === 'string') return head
    const after = at + end + HEAD_END.length - cut.length
    if (head.status === 101) return 'a switch of protocols'
    if (head.status < 200) return after // 100 and its like: the answer is still to come
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

  #size(bytes: Buffer, from: number): number | string {
    let at = from
    if (this.#digits === 0) {
      this.#frameStart = from
      this.#left = 0
    }
    for (; at < bytes.length; at++) {
      const byte = bytes[at]!
      const digit = byte <= 0x39 ? byte - 0x30 : (byte | 0x20) - 0x57
      if (digit < 0 || digit > 15 || (digit < 10 && byte > 0x39)) break
      if (++this.#digits > MAX_SIZE_DIGITS) return 'a chunk that is too large'
      this.#left = this.#left * 16 + digit
    }
    if (at === bytes.length) return at
    if (this.#digits === 0) return 'a chunk without a size'
    const byte = bytes[at]!
    // The whole of it is there nearly always.
    if (byte === CR && bytes[at + 1] === LF) {
      this.#sizeRead()
      return at + 2
    }
    if (byte === CR) this.#state = SIZE_END
    else if (byte === SEMICOLON || byte === SPACE || byte === TAB) {
      this.#frameStart = -1
      this.#asideBytes = 0
      this.#state = EXTENSION
    } else return 'a chunk without a size'
    return at + 1
  }

  #sizeRead(): void {
    this.#digits = 0
    this.#asideBytes = 0
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

  /** One byte of what is between chunks and after them, where it came in pieces or holds more than it must. */
  #between(byte: number, to: ReplyTarget): string | undefined {
    if (this.#state === SIZE_END) {
      if (byte !== LF) return 'a chunk’s size without a line end'
      this.#sizeRead()
    } else if (this.#state === CHUNK_END) {
      if (byte === LF && this.#asideBytes === 1) this.#state = SIZE
      else if (byte !== CR || this.#asideBytes++ > 0) return 'a chunk that is longer than its size'
    } else if (++this.#asideBytes > MAX_BUFFERED_BYTES) return 'too much beside the chunks'
    else if (this.#state === EXTENSION) {
      if (byte === CR) this.#state = SIZE_END
      else if (byte === LF) return 'a line end of half a size'
    } else if (byte === LF) {
      if (this.#left === 0) this.#end(to)
      this.#left = 0
    } else if (byte !== CR) this.#left++ // of a line that is not empty
    return undefined
  }

  #end(to: ReplyTarget): void {
    this.#state = DONE
    to.onBodyEnd()
  }
}
