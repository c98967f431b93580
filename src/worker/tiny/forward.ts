/**
 * The model’s forward pass: tokens of several sequences go through the layers together, over keys and values
 * in the worker’s blocks. A token’s result depends only on its own sequence, bit for bit: not on the rest of
 * the slice, on how a prompt was split, or on which blocks it is in.
 */
import type { TinyConfig } from './config.ts'
import { ExpertLists, Gate } from './gate.ts'
import type { TinyKernel } from './kernel.ts'
import { fillMemory, layOutMemory, type MemoryLayout, SLICE } from './memory.ts'
import type { LayerWeights } from './weights.ts'

/** Tokens `from` (inclusive) to `to` (exclusive) of a sequence; those before are in its blocks. */
export interface Part {
  readonly ids: Int32Array
  readonly from: number
  readonly to: number
  readonly blocks: ArrayLike<number>
}

export class Forward {
  /** Of the last slice: [tokens][layers][topK], most probable first. */
  readonly experts: Uint16Array
  readonly layout: MemoryLayout
  readonly kernel: TinyKernel
  readonly #config: TinyConfig
  readonly #blockTokens: number
  readonly #gate: Gate
  readonly #lists: ExpertLists
  readonly #f32: Float32Array
  readonly #u32: Uint32Array
  readonly #slots = new Int32Array(SLICE)

  constructor(
    config: TinyConfig,
    weights: Float32Array,
    blocks: number,
    blockTokens: number,
    create: (bytes: number) => TinyKernel,
  ) {
    this.#config = config
    this.#blockTokens = blockTokens
    this.layout = layOutMemory(config, blocks * blockTokens)
    this.kernel = fillMemory(config, this.layout, weights, create)
    this.#f32 = new Float32Array(this.kernel.buffer)
    this.#u32 = new Uint32Array(this.kernel.buffer)
    this.experts = new Uint16Array(SLICE * config.layers * config.topK)
    const gate = {
      probabilities: this.#f32,
      chosen: this.experts,
      weights: new Float32Array(SLICE * config.topK),
    }
    this.#gate = new Gate(config, gate)
    const { which, factors } = this.layout
    this.#lists = new ExpertLists(config, gate, {
      which: this.#u32.subarray(which / 4),
      factors: this.#f32.subarray(factors / 4),
    })
  }

  /** Slot of a token’s keys and values. */
  slotOf(blocks: ArrayLike<number>, token: number): number {
    const block = Math.floor(token / this.#blockTokens)
    return blocks[block]! * this.#blockTokens + token - block * this.#blockTokens
  }

  /** All parts together have at most SLICE tokens. On return their keys and values are in the blocks. */
  run(parts: readonly Part[]): void {
    const { kernel, layout } = this
    const { hidden, eps, layers } = this.#config
    const tokens = this.#begin(parts)
    layout.weights.layers.forEach((layer, l) => {
      kernel.norm(layout.hidden, tokens, hidden, layer.inputNorm, eps, layout.normed)
      this.#attend(layer, l, parts, tokens)
      kernel.add(layout.hidden, layout.projected, tokens * hidden)
      kernel.norm(layout.hidden, tokens, hidden, layer.expertsNorm, eps, layout.normed)
      this.#mixExperts(layer, l * this.#config.topK, layers * this.#config.topK, tokens)
      kernel.add(layout.hidden, layout.projected, tokens * hidden)
    })
  }

  /** Logits of these tokens of the slice, one row each, valid until the next call. */
  logits(tokens: readonly number[]): Float32Array[] {
    const { kernel, layout } = this
    const { hidden, eps, vocabulary } = this.#config
    this.#u32.set(tokens, layout.which / 4)
    kernel.gather(layout.hidden, layout.which, tokens.length, 4 * hidden, layout.projected)
    kernel.norm(layout.projected, tokens.length, hidden, layout.weights.finalNorm, eps, layout.normed)
    kernel.matmul(layout.normed, tokens.length, hidden, layout.weights.head, vocabulary, layout.logits)
    return tokens.map(
      (_, i) => new Float32Array(kernel.buffer, layout.logits + 4 * i * vocabulary, vocabulary),
    )
  }

  /** Sets up embeddings, positions and the addresses of keys and values. */
  #begin(parts: readonly Part[]): number {
    const { kernel, layout } = this
    const u32 = this.#u32
    let token = 0
    parts.forEach(({ ids, from, to, blocks }, p) => {
      const rows = layout.rows / 4 + p * layout.rowsPerSequence
      const padded = Math.min(layout.rowsPerSequence, Math.ceil(to / 4) * 4)
      for (let t = 0; t < to; t++) u32[rows + t] = this.slotOf(blocks, t) * layout.kvRowBytes
      // Padding that is read but not used.
      u32.fill(0, rows + to, rows + padded)
      for (let t = from; t < to; t++, token++) {
        u32[layout.which / 4 + token] = ids[t]!
        u32[layout.positions / 4 + token] = t
        this.#slots[token] = this.slotOf(blocks, t)
      }
    })
    kernel.gather(layout.weights.embedding, layout.which, token, 4 * this.#config.hidden, layout.hidden)
    return token
  }

  #attend(layer: LayerWeights, l: number, parts: readonly Part[], tokens: number): void {
    const { kernel, layout } = this
    const { hidden, heads, kvHeads, headWidth, eps } = this.#config
    const [q, kv] = [heads * headWidth, kvHeads * headWidth]
    const width = q + 2 * kv
    kernel.matmul(layout.normed, tokens, hidden, layer.qkv, width, layout.qkv)
    kernel.normTurn(
      layout.qkv,
      tokens,
      4 * width,
      heads,
      headWidth,
      layer.qNorm,
      eps,
      layout.positions,
      layout.turns,
    )
    kernel.normTurn(
      layout.qkv + 4 * q,
      tokens,
      4 * width,
      kvHeads,
      headWidth,
      layer.kNorm,
      eps,
      layout.positions,
      layout.turns,
    )
    const base = layout.kv + l * layout.kvPlanes * layout.kvPlaneBytes
    for (let t = 0; t < tokens; t++) {
      let from = layout.qkv / 4 + t * width + q
      let to = (base + this.#slots[t]! * layout.kvRowBytes) / 4
      for (let plane = 0; plane < layout.kvPlanes; plane++, from += headWidth, to += layout.kvPlaneBytes / 4)
        this.#f32.copyWithin(to, from, from + headWidth)
    }
    // Two heads at a time: those that share keys and values.
    const scale = 1 / Math.sqrt(headWidth)
    let token = 0
    parts.forEach(({ from, to }, p) => {
      const rows = layout.rows + 4 * p * layout.rowsPerSequence
      for (let t = from; t < to; t++, token++) {
        for (let head = 0; head < heads; head += 2) {
          const keys = base + Math.floor((head * kvHeads) / heads) * layout.kvPlaneBytes
          const values = keys + kvHeads * layout.kvPlaneBytes
          const [query, out] = [
            layout.qkv + 4 * (token * width + head * headWidth),
            layout.attended + 4 * (token * q + head * headWidth),
          ]
          kernel.attend(query, headWidth, rows, t + 1, keys, values, scale, layout.scores, out)
        }
      }
    })
    kernel.matmul(layout.attended, tokens, q, layer.output, hidden, layout.projected)
  }

  /** `at`, `stride`: position of the layer’s choices among a token’s. */
  #mixExperts(layer: LayerWeights, at: number, stride: number, tokens: number): void {
    const { kernel, layout } = this
    const { hidden, experts, topK, expertWidth } = this.#config
    kernel.matmul(layout.normed, tokens, hidden, layer.gate, experts, layout.gates)
    kernel.softmax(layout.gates, tokens, experts, 1)
    for (let t = 0; t < tokens; t++) {
      this.#gate.choose(layout.gates / 4 + t * experts, at + t * stride, t * topK)
    }
    this.#lists.sort(tokens, at, stride)
    this.#f32.fill(0, layout.projected / 4, layout.projected / 4 + tokens * hidden)
    const { starts } = this.#lists
    // In ascending order of experts, so that a token’s sum always has the same order.
    for (let e = 0; e < experts; e++) {
      const [first, count] = [starts[e]!, starts[e + 1]! - starts[e]!]
      if (count === 0) continue
      kernel.gather(layout.normed, layout.which + 4 * first, count, 4 * hidden, layout.gathered)
      kernel.matmul(
        layout.gathered,
        count,
        hidden,
        layer.gateUp + e * layer.gateUpBytes,
        2 * expertWidth,
        layout.gateUp,
      )
      kernel.gatedUnit(layout.gateUp, count, expertWidth, layout.inner)
      kernel.matmul(layout.inner, count, expertWidth, layer.down + e * layer.downBytes, hidden, layout.down)
      kernel.addScaled(
        layout.down,
        layout.which + 4 * first,
        layout.factors + 4 * first,
        count,
        hidden,
        layout.projected,
      )
    }
  }
}
