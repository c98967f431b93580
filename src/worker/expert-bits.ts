/**
 * Distinct experts of a step’s decode items as bit sets: their union, the count per layer, and the weighted
 * mean.
 */
import { activeExperts, bitCount } from '../cost/union.ts'
import type { ModelShape } from './types.ts'

export class ExpertBits {
  readonly perLayer: Uint16Array
  /** Mean over the cost model’s layers. */
  active = 0
  readonly #model: ModelShape
  readonly #weights: Float64Array
  readonly #wordsPerLayer: number
  /** [layers][words] */
  readonly #bits: Int32Array

  /** `weights`: the share of the cost model’s layers that each layer represents. */
  constructor(model: ModelShape, weights: Float64Array) {
    this.#model = model
    this.#weights = weights
    this.#wordsPerLayer = Math.ceil(model.experts / 32)
    this.#bits = new Int32Array(model.layers * this.#wordsPerLayer)
    this.perLayer = new Uint16Array(model.layers)
  }

  clear(): void {
    this.#bits.fill(0)
  }

  /** `experts`: [layers][topK] of a token, starting at index `at`. */
  add(experts: Uint8Array | Uint16Array, at: number): void {
    const { layers, topK } = this.#model
    const bits = this.#bits
    for (let layer = 0, base = 0; layer < layers; layer++, base += this.#wordsPerLayer) {
      for (const end = at + topK; at < end; at++) {
        const expert = experts[at]!
        bits[base + (expert >> 5)]! |= 1 << (expert & 31)
      }
    }
  }

  count(): void {
    for (let layer = 0, w = 0; layer < this.#model.layers; layer++) {
      let count = 0
      for (const end = w + this.#wordsPerLayer; w < end; w++) count += bitCount(this.#bits[w]!)
      this.perLayer[layer] = count
    }
    this.active = activeExperts(this.#bits, this.#weights)
  }

  /** [layers][experts], 1 if active, else 0. */
  write(out: Uint8Array): void {
    const { layers, experts } = this.#model
    for (let layer = 0; layer < layers; layer++) {
      for (let e = 0; e < experts; e++)
        out[layer * experts + e] = (this.#bits[layer * this.#wordsPerLayer + (e >> 5)]! >>> (e & 31)) & 1
    }
  }
}
