/**
 * Counts the distinct experts of one decode step on bit words; its time depends on them. A simulation spends
 * most of its time in these loops.
 */

/**
 * out = OR over the batch of the words of each request's step, which begin at `at`. Four requests per
 * iteration, so that `out` is loaded and stored once for all of them.
 */
export function uniteSteps(words: Int32Array, at: Int32Array, batch: number, out: Int32Array): void {
  const width = out.length
  out.fill(0)
  let i = 0
  for (; i + 4 <= batch; i += 4) {
    const [a, b, c, d] = [at[i]!, at[i + 1]!, at[i + 2]!, at[i + 3]!]
    for (let w = 0; w < width; w++) out[w]! |= words[a + w]! | words[b + w]! | words[c + w]! | words[d + w]!
  }
  for (; i < batch; i++) {
    const a = at[i]!
    for (let w = 0; w < width; w++) out[w]! |= words[a + w]!
  }
}

/** Σ weight·(experts of the layer): active experts, mean over the profile's layers. weights: [layers]. */
export function activeExperts(union: Int32Array, weights: Float64Array): number {
  const wordsPerLayer = union.length / weights.length
  let sum = 0
  for (let layer = 0, w = 0; layer < weights.length; layer++) {
    let count = 0
    for (const end = w + wordsPerLayer; w < end; w++) count += bitCount(union[w]!)
    sum += weights[layer]! * count
  }
  return sum
}

/**
 * The same for each layer's fullest rank: expert-parallel ranks wait for the one that loads most. masks:
 * [ranks][words of a step].
 */
export function fullestRankExperts(union: Int32Array, weights: Float64Array, masks: Int32Array): number {
  const wordsPerLayer = union.length / weights.length
  const ranks = masks.length / union.length
  let sum = 0
  for (let layer = 0; layer < weights.length; layer++) {
    let fullest = 0
    for (let rank = 0; rank < ranks; rank++) {
      let count = 0
      for (let w = layer * wordsPerLayer; w < (layer + 1) * wordsPerLayer; w++)
        count += bitCount(union[w]! & masks[rank * union.length + w]!)
      if (count > fullest) fullest = count
    }
    sum += weights[layer]! * fullest
  }
  return sum
}

/** Set bits of 32: pairs, then fours, then bytes, summed by one multiplication. */
export function bitCount(word: number): number {
  const pairs = word - ((word >>> 1) & 0x55555555)
  const fours = (pairs & 0x33333333) + ((pairs >>> 2) & 0x33333333)
  return Math.imul((fours + (fours >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}
