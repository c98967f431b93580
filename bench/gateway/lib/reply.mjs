// Finds the end of an HTTP/1.1 response without storing or decoding it: the load client must cost less than
// the router. The end of chunks is detected by the last bytes, which cannot occur in a server-sent event.

const CHUNKS_END = Buffer.from('\r\n0\r\n\r\n')

export class Reply {
  status = 0
  /** The head so far, while it is not whole. @type {Buffer | undefined} */
  #head
  /** Remaining bytes of the body; −1 if chunked. */
  #left = 0
  #tail = Buffer.alloc(0)

  /** Starts a new response. */
  reset() {
    this.status = 0
    this.#head = undefined
    this.#tail = CHUNKS_END.subarray(0, 0)
  }

  /**
   * @param {Buffer} chunk
   * @returns {{done: boolean, bodyAt: number}} whether the response is complete, and where in the chunk its
   * body begins (the end if it does not)
   */
  push(chunk) {
    let bodyAt = 0
    if (this.status === 0) {
      const before = this.#head?.length ?? 0
      const bytes = before === 0 ? chunk : Buffer.concat([this.#head, chunk])
      const end = bytes.indexOf('\r\n\r\n')
      if (end < 0) {
        this.#head = bytes
        return { done: false, bodyAt: chunk.length }
      }
      this.#readHead(bytes.toString('latin1', 0, end))
      bodyAt = end + 4 - before
    }
    if (this.#left >= 0) {
      this.#left -= chunk.length - bodyAt
      return { done: this.#left <= 0, bodyAt }
    }
    return { done: this.#endsChunks(chunk), bodyAt }
  }

  /** @param {string} head */
  #readHead(head) {
    this.status = Number(head.slice(9, 12))
    const length = /\r\ncontent-length:[ \t]*(\d+)/i.exec(head)
    this.#left = length === null ? -1 : Number(length[1])
  }

  /** @param {Buffer} chunk */
  #endsChunks(chunk) {
    const wanted = CHUNKS_END.length
    if (chunk.length < wanted) this.#tail = Buffer.concat([this.#tail, chunk]).subarray(-wanted)
    else this.#tail = chunk.subarray(-wanted)
    return this.#tail.equals(CHUNKS_END)
  }
}
