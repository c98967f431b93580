/** Selects the experts of each token and groups tokens by expert. */
import type { TinyConfig } from './config.ts'

/** The buffers that the gate works on. */
export interface GateBuffers {
  readonly probabilities: Float32Array
  /** [tokens][layers][topK] */
  readonly chosen: Uint16Array
  /** [tokens][topK] of one layer. */
  readonly weights: Float32Array
}

export class Gate {
  readonly #config: Pick<TinyConfig, 'experts' | 'topK' | 'renormalise'>
  readonly #buffers: GateBuffers

  constructor(config: Pick<TinyConfig, 'experts' | 'topK' | 'renormalise'>, buffers: GateBuffers) {
    this.#config = config
    this.#buffers = buffers
  }

  /**
   * Selects the topK most probable of the probabilities at `at`, most probable first, the lower index among
   * equals. Writes them to `chosen` from `to` on and their weights to `weights` from `weightsTo` on. With
   * `renormalise` the weights are divided by their sum in single precision.
   */
  choose(at: number, to: number, weightsTo: number): void {
    const { experts, topK, renormalise } = this.#config
    const { probabilities, chosen, weights } = this.#buffers
    let held = 0
    for (let e = 0; e < experts; e++) {
      const p = probabilities[at + e]!
      if (held === topK && p <= weights[weightsTo + topK - 1]!) continue
      let place = held < topK ? held++ : topK - 1
      for (; place > 0 && weights[weightsTo + place - 1]! < p; place--) {
        weights[weightsTo + place] = weights[weightsTo + place - 1]!
        chosen[to + place] = chosen[to + place - 1]!
      }
      weights[weightsTo + place] = p
      chosen[to + place] = e
    }
    if (!renormalise) return
    let sum = 0
    for (let i = 0; i < topK; i++) sum = Math.fround(sum + weights[weightsTo + i]!)
    for (let i = 0; i < topK; i++) weights[weightsTo + i] = weights[weightsTo + i]! / sum
  }
}

/** The output of a grouping: tokens and their weights, with room for topK entries per token. */
export interface GroupBuffers {
  readonly which: Uint32Array
  readonly factors: Float32Array
}

/** Tokens and weights grouped by expert: those of expert e are starts[e] to starts[e + 1]. */
export class ExpertLists {
  readonly starts: Uint32Array
  readonly #topK: number
  readonly #ends: Uint32Array
  readonly #chosen: Uint16Array
  readonly #weights: Float32Array
  readonly #groups: GroupBuffers

  constructor(
    { experts, topK }: Pick<TinyConfig, 'experts' | 'topK'>,
    { chosen, weights }: GateBuffers,
    groups: GroupBuffers,
  ) {
    this.#topK = topK
    this.#chosen = chosen
    this.#weights = weights
    this.#groups = groups
    this.starts = new Uint32Array(experts + 1)
    this.#ends = new Uint32Array(experts)
  }

  /** Groups the first `tokens` tokens; the choices of token t are at `at` + t · `stride`. */
  sort(tokens: number, at: number, stride: number): void {
    const topK = this.#topK
    const { starts } = this
    const ends = this.#ends
    const chosen = this.#chosen
    const weights = this.#weights
    const { which, factors } = this.#groups
    starts.fill(0)
    for (let t = 0; t < tokens; t++)
      for (let i = 0; i < topK; i++) starts[chosen[at + t * stride + i]! + 1]!++
    for (let e = 0; e < ends.length; e++) {
      ends[e] = starts[e]!
      starts[e + 1]! += starts[e]!
    }
    for (let t = 0; t < tokens; t++) {
      for (let i = 0; i < topK; i++) {
        const place = ends[chosen[at + t * stride + i]!]!++
        which[place] = t
        factors[place] = weights[t * topK + i]!
      }
    }
  }
}
