/**
 * Experts of prompts, one row per KV block, indexed by the same block id (paper §4.4). A row has a cell per
 * layer and expert, and a cell has one bit per slot of the block: set if the token in that slot was routed to
 * that expert. The number of set bits is the paper’s count; weighted by slot they give the recent count. Bits
 * of later tokens can be masked out, so the counts of a prompt that ends inside a block are exact even if
 * another request filled the rest. A row is written when its block is computed and zeroed when the block
 * loses its content.
 */
import type { CountsSnapshot, ExpertSink, ModelShape } from '../types.ts'

/** Slots per word of a cell. Longer blocks have several words per cell. */
const WORD = 16

export class SignatureCache implements ExpertSink {
  /** Non-zero rows. */
  used = 0
  readonly #model: ModelShape
  readonly #blockTokens: number
  readonly #halfLife: number | undefined
  /** Words per cell and per row. */
  readonly #cellWords: number
  readonly #rowWords: number
  /** [blocks][words of a cell][layers][experts] */
  readonly #rows: Uint16Array
  /** [blocks][words of a cell] slots whose token’s experts are known. */
  readonly #known: Uint16Array
  /** For each word: its number of set bits, and Σ 2^(−(15 − bit) / half-life) over them. */
  readonly #bits = bitsOfWords()
  readonly #weights: Float64Array | undefined

  constructor(model: ModelShape, blocks: number, blockTokens: number, halfLife?: number) {
    this.#model = model
    this.#blockTokens = blockTokens
    this.#halfLife = halfLife
    this.#cellWords = Math.ceil(blockTokens / WORD)
    this.#rowWords = this.#cellWords * model.layers * model.experts
    // Zero pages that were never written take no memory.
    this.#rows = new Uint16Array(blocks * this.#rowWords)
    this.#known = new Uint16Array(blocks * this.#cellWords)
    this.#weights = halfLife === undefined ? undefined : weightsOfWords(halfLife)
  }

  get bytes(): number {
    return this.#rows.byteLength + this.#known.byteLength
  }

  put(block: number, slot: number, experts: Uint8Array | Uint16Array, at: number): void {
    const { layers, experts: width, topK } = this.#model
    const bit = 1 << (slot % WORD)
    const word = block * this.#cellWords + Math.floor(slot / WORD)
    // A token that is computed twice, like the last one of a received prompt, keeps its first entry and is
    // never counted twice.
    if ((this.#known[word]! & bit) !== 0) return
    if (!this.#isUsed(block)) this.used++
    this.#known[word]! |= bit
    const rows = this.#rows
    let cell = word * layers * width
    for (let layer = 0; layer < layers; layer++, cell += width) {
      for (const end = at + topK; at < end; at++) rows[cell + experts[at]!]! |= bit
    }
  }

  /** The block lost its content. */
  reset(block: number): void {
    if (!this.#isUsed(block)) return
    this.used--
    this.#rows.fill(0, block * this.#rowWords, (block + 1) * this.#rowWords)
    this.#known.fill(0, block * this.#cellWords, (block + 1) * this.#cellWords)
  }

  /** For tests: true if the row is empty. */
  isZero(block: number): boolean {
    return (
      !this.#isUsed(block) &&
      this.#rows.subarray(block * this.#rowWords, (block + 1) * this.#rowWords).every(word => word === 0)
    )
  }

  /** Counts over the first `tokens` tokens of the sequence in `blocks`. */
  sum(blocks: ArrayLike<number>, tokens: number): CountsSnapshot {
    const { layers, experts, topK } = this.#model
    const cells = layers * experts
    const counts = new Uint32Array(cells)
    const recent = this.#weights && new Float64Array(cells)
    let covered = 0
    for (let start = 0, index = 0; start < tokens; start += this.#blockTokens, index++) {
      for (let part = 0; part < this.#cellWords; part++) {
        const first = start + part * WORD
        const slots = Math.min(WORD, start + this.#blockTokens - first, tokens - first)
        const word = blocks[index]! * this.#cellWords + part
        if (slots <= 0 || this.#known[word] === 0) continue
        const mask = 2 ** slots - 1
        covered += this.#bits[this.#known[word]! & mask]!
        this.#add(word * cells, mask, counts)
        if (recent)
          this.#addRecent(word * cells, mask, 2 ** ((first + WORD - tokens) / this.#halfLife!), recent)
      }
    }
    const snapshot = { layers, experts, topK, tokens, covered, counts }
    return recent ? { ...snapshot, recent, halfLife: this.#halfLife! } : snapshot
  }

  #add(at: number, mask: number, counts: Uint32Array): void {
    const [rows, bits] = [this.#rows, this.#bits]
    for (let c = 0; c < counts.length; c++) counts[c]! += bits[rows[at + c]! & mask]!
  }

  #addRecent(at: number, mask: number, weight: number, recent: Float64Array): void {
    const [rows, weights] = [this.#rows, this.#weights!]
    for (let c = 0; c < recent.length; c++) recent[c]! += weight * weights[rows[at + c]! & mask]!
  }

  #isUsed(block: number): boolean {
    for (let word = block * this.#cellWords; word < (block + 1) * this.#cellWords; word++)
      if (this.#known[word] !== 0) return true
    return false
  }
}

function bitsOfWords(): Uint8Array {
  const bits = new Uint8Array(2 ** WORD)
  for (let word = 1; word < bits.length; word++) bits[word] = bits[word >> 1]! + (word & 1)
  return bits
}

/** Each entry is derived from a smaller word plus its highest bit. */
function weightsOfWords(halfLife: number): Float64Array {
  const weights = new Float64Array(2 ** WORD)
  for (let bit = 0; bit < WORD; bit++) {
    const weight = 2 ** (-(WORD - 1 - bit) / halfLife)
    for (let word = 0; word < 2 ** bit; word++) weights[2 ** bit + word] = weights[word]! + weight
  }
  return weights
}

export interface KvShape {
  /** Layers with attention, KV heads per layer, head size, and bytes per number. */
  readonly layers: number
  readonly heads: number
  readonly headWidth: number
  readonly bytes: number
}

/** Size of a block’s row compared with the keys and values of the block. */
export function signatureMemory(
  { layers, experts }: ModelShape,
  blockTokens: number,
  kv: KvShape,
): { rowBytes: number; kvBytes: number; share: number } {
  const words = Math.ceil(blockTokens / WORD)
  const rowBytes = 2 * words * (layers * experts + 1)
  const kvBytes = blockTokens * 2 * kv.layers * kv.heads * kv.headWidth * kv.bytes
  return { rowBytes, kvBytes, share: rowBytes / kvBytes }
}
