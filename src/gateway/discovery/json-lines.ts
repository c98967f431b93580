/** Parser for a stream of JSON lines. */
import { LookupFailure } from './source.ts'

const NEWLINE = 0x0a

export class JsonLines {
  readonly #maxBytes: number
  #parts: Buffer[] = []
  #bytes = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /**
   * Yields the values of the lines that end in this chunk. Throws a LookupFailure on invalid JSON or a line
   * that is too long.
   */
  *push(chunk: Buffer): Generator {
    let from = 0
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, from)) {
      const line = Buffer.concat([...this.#parts, chunk.subarray(from, at)]).toString('utf8')
      this.#parts = []
      this.#bytes = 0
      from = at + 1
      if (line.trim() !== '') yield parsed(line)
    }
    if (from === chunk.length) return
    this.#parts.push(chunk.subarray(from))
    this.#bytes += chunk.length - from
    if (this.#bytes > this.#maxBytes)
      throw new LookupFailure(
        'broken',
        `the Kubernetes API sent an event larger than ${this.#maxBytes >> 20} MiB`,
      )
  }
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch (cause) {
    throw new LookupFailure('broken', 'the Kubernetes API sent an event that is not valid JSON', cause)
  }
}
