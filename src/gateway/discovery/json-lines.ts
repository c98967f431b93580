/** Lines of JSON in a stream of bytes that may be cut anywhere. */
import { LookupFailure } from './source.ts'

const NEWLINE = 0x0a

export class JsonLines {
  readonly #mostBytes: number
  #parts: Buffer[] = []
  #bytes = 0

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes
  }

  /** The values of the lines that this chunk ends. Throws a LookupFailure at one that is none, or that does not end. */
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
    if (this.#bytes > this.#mostBytes)
      throw new LookupFailure(
        'broken',
        `the Kubernetes API sends an event of more than ${this.#mostBytes >> 20} MiB`,
      )
  }
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch (cause) {
    throw new LookupFailure('broken', 'the Kubernetes API sends an event that is no JSON', cause)
  }
}
