/** Which experts the gate chooses, and which tokens go to each. */

/**
 * The topK most probable of `experts` probabilities at `at`, most probable first, of equals the lower expert; written to `chosen` from
 * `to` on, their weights to `weights` from `weightsTo` on. Weights are divided by their sum, in single precision, where asked.
 */
export function chooseExperts(
  probabilities: Float32Array,
  at: number,
  experts: number,
  topK: number,
  renormalise: boolean,
  chosen: Uint16Array,
  to: number,
  weights: Float32Array,
  weightsTo: number,
): void {
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

/** Tokens and weights in the order of their experts: those of expert e are starts[e] up to starts[e + 1]. */
export class ExpertLists {
  readonly starts: Uint32Array
  readonly #topK: number
  readonly #ends: Uint32Array

  constructor(experts: number, topK: number) {
    this.#topK = topK
    this.starts = new Uint32Array(experts + 1)
    this.#ends = new Uint32Array(experts)
  }

  /** chosen: a row of topK for each token, `stride` apart from `at` on. weights: [tokens][topK]. `which` and `factors` have room for all. */
  sort(
    tokens: number,
    chosen: Uint16Array,
    at: number,
    stride: number,
    weights: Float32Array,
    which: Uint32Array,
    factors: Float32Array,
  ): void {
    const topK = this.#topK
    const { starts } = this
    const ends = this.#ends
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
