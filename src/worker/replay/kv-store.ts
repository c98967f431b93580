/**
 * The KV of the replay back end: fingerprints by slot, and their wire format. On the wire a token has the
 * configured number of bytes, its fingerprint and values derived from it, so that a transfer moves realistic
 * amounts of data. Every byte is checked against the prompt on arrival.
 */
import type { KvPayload, KvTarget } from '../types.ts'
import { drawBits, follow } from './fingerprint.ts'

const MAGIC = 0x31564b45 // "EKV1"
const HEADER_WORDS = 4

export class KvStore {
  /** Bytes per token on the wire: a multiple of 8. */
  readonly bytesPerToken: number
  readonly blockTokens: number
  /** [blocks][slots][low, high] */
  readonly slots: Uint32Array

  constructor(blocks: number, blockTokens: number, bytesPerToken: number) {
    this.bytesPerToken = bytesPerToken
    this.blockTokens = blockTokens
    this.slots = new Uint32Array(2 * blocks * blockTokens)
  }

  /** Index in `slots` of a token of the sequence. */
  at(blocks: ArrayLike<number>, token: number): number {
    const block = Math.floor(token / this.blockTokens)
    return 2 * (blocks[block]! * this.blockTokens + token - block * this.blockTokens)
  }

  /** The KV of tokens `from` to `tokens`. */
  export(row: number, blocks: ArrayLike<number>, from: number, tokens: number): Uint8Array {
    const width = this.bytesPerToken / 4
    const words = new Uint32Array(HEADER_WORDS + (tokens - from) * width)
    words.set([MAGIC, row, tokens, width])
    for (let token = from, out = HEADER_WORDS; token < tokens; token++, out += width) {
      const at = this.at(blocks, token)
      fill(words, out, width, this.slots[at]!, this.slots[at + 1]!)
    }
    return new Uint8Array(words.buffer)
  }

  /**
   * Writes tokens `from` to `tokens`. Throws, having written nothing, unless all of it is the KV of these
   * ids.
   */
  import(row: number, root: Uint32Array, payload: KvPayload, { ids, from, tokens, blocks }: KvTarget): void {
    const width = this.bytesPerToken / 4
    const words = wordsOf(payload.bytes)
    const wanted = [MAGIC, row, tokens, width]
    if (
      words.length !== HEADER_WORDS + (tokens - from) * width ||
      wanted.some((word, i) => words[i] !== word)
    ) {
      throw new Error(`The received KV is not that of tokens ${from} to ${tokens} of row ${row}`)
    }
    const expected = new Uint32Array(2 * tokens)
    const token = new Uint32Array(width)
    for (let t = 0; t < tokens; t++) {
      follow(t === 0 ? root : expected, t === 0 ? 0 : 2 * t - 2, ids[t]!, expected, 2 * t)
      if (t < from) continue
      fill(token, 0, width, expected[2 * t]!, expected[2 * t + 1]!)
      const at = HEADER_WORDS + (t - from) * width
      for (let w = 0; w < width; w++) {
        if (words[at + w] !== token[w])
          throw new Error(`The received KV differs from that of the prompt at token ${t}`)
      }
    }
    for (let t = from; t < tokens; t++)
      this.slots.set(expected.subarray(2 * t, 2 * t + 2), this.at(blocks, t))
  }
}

function fill(words: Uint32Array, at: number, width: number, low: number, high: number): void {
  words[at] = low
  words[at + 1] = high
  for (let w = 2; w < width; w++) words[at + w] = drawBits(low, high, w)
}

/** Socket data may be unaligned; words must be aligned. */
function wordsOf(bytes: Uint8Array): Uint32Array {
  const copy = bytes.slice(0, bytes.length - (bytes.length % 4))
  return new Uint32Array(copy.buffer, copy.byteOffset, copy.length / 4)
}
