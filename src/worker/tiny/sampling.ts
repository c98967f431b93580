/**
 * Samples the next token from a row of probabilities. The random number depends only on the request’s seed
 * and the token’s position, so a seed gives the same text in any batch, on any worker, and after a
 * preemption.
 */
import { createRandom } from '../../math/random.ts'

/** Temperatures below this count as 0, as in vLLM. */
export const GREEDY_BELOW = 1e-5
/** Above this, sorting is cheaper than keeping the k largest. */
const FEW = 256

/** Uniform in [0, 1). `position`: number of preceding tokens. */
export function drawAt(seed: number, position: number): number {
  return createRandom(seed).fork(position).uniform()
}

/** True if all values are comparable numbers: after an overflow any token could be the most likely one. */
export function areFinite(values: Float32Array): boolean {
  for (let i = 0; i < values.length; i++) if (!Number.isFinite(values[i]!)) return false
  return true
}

/** The lowest id among equals. */
export function mostLikely(values: Float32Array): number {
  let best = 0
  for (let id = 1; id < values.length; id++) if (values[id]! > values[best]!) best = id
  return best
}

/**
 * `probabilities` need not sum to 1. Keeps the topK largest (0: all; including ties with the last), then the
 * smallest set of the largest whose share of the rest is at least `topP`.
 */
export function sampleToken(probabilities: Float32Array, topK: number, topP: number, draw: number): number {
  if (topP >= 1 && (topK === 0 || topK >= probabilities.length)) return pick(probabilities, undefined, draw)
  const least = topK === 0 ? 0 : kthLargest(probabilities, topK)
  const kept: number[] = []
  let total = 0
  for (let id = 0; id < probabilities.length; id++) {
    const p = probabilities[id]!
    if (p === 0 || p < least) continue
    kept.push(id)
    total += p
  }
  return pick(probabilities, topP < 1 ? nucleus(probabilities, kept, total, topP) : kept, draw)
}

/** The largest of `ids` that together have the share `topP` of their total, at least one. */
function nucleus(probabilities: Float32Array, ids: readonly number[], total: number, topP: number): number[] {
  // Values below the mean of the cut-off share are all cut off and need not be sorted.
  const floor = ((1 - topP) * total) / ids.length
  const large = ids
    .filter(id => probabilities[id]! >= floor)
    .sort((a, b) => probabilities[b]! - probabilities[a]! || a - b)
  let sum = 0
  const end = large.findIndex(id => (sum += probabilities[id]!) >= topP * total)
  return end < 0 ? large : large.slice(0, end + 1)
}

/** `ids`: undefined for all. */
function pick(probabilities: Float32Array, ids: readonly number[] | undefined, draw: number): number {
  const count = ids?.length ?? probabilities.length
  let total = 0
  for (let i = 0; i < count; i++) total += probabilities[ids === undefined ? i : ids[i]!]!
  const target = draw * total
  let sum = 0
  let last = 0
  for (let i = 0; i < count; i++) {
    const id = ids === undefined ? i : ids[i]!
    const p = probabilities[id]!
    if (p === 0) continue
    sum += p
    last = id
    if (sum > target) return id
  }
  return last
}

function kthLargest(values: Float32Array, k: number): number {
  if (k >= values.length) return 0
  if (k > FEW) return values.slice().sort()[values.length - k]!
  /** The k largest so far, smallest last. */
  const largest = new Float32Array(k).fill(-Infinity)
  for (const value of values) {
    if (value <= largest[k - 1]!) continue
    let place = k - 1
    for (; place > 0 && largest[place - 1]! < value; place--) largest[place] = largest[place - 1]!
    largest[place] = value
  }
  return largest[k - 1]!
}
