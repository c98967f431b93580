/**
 * The next token from a row of probabilities. The random number is made of the request's seed and the token's place in the text alone, so
 * that a seed gives the same text in whatever batch, on whichever worker, and after a preemption.
 */
import { createRandom } from '../../math/random.ts'

/** Below this a temperature counts as 0, as in vLLM. */
export const GREEDY_BELOW = 1e-5
/** Beyond so many, sorting is cheaper than keeping the largest. */
const FEW = 256

/** Uniform in [0, 1). `position`: how many tokens stand before. */
export function drawAt(seed: number, position: number): number {
  return createRandom(seed).fork(position).uniform()
}

/** Whether all are numbers that can be compared: where sums have overflowed, the most likely token would be any. */
export function areFinite(values: Float32Array): boolean {
  for (let i = 0; i < values.length; i++) if (!Number.isFinite(values[i]!)) return false
  return true
}

/** Of equals the lowest id. */
export function mostLikely(values: Float32Array): number {
  let best = 0
  for (let id = 1; id < values.length; id++) if (values[id]! > values[best]!) best = id
  return best
}

/**
 * `probabilities` need not sum to 1. First the topK largest are kept (0: all; equals of the last of them too), then the fewest of the
 * largest that have `topP` of what is left.
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

/** The largest of `ids` that together have the share `topP` of their total, one at least. */
function nucleus(probabilities: Float32Array, ids: readonly number[], total: number, topP: number): number[] {
  // Those below the mean share of what is cut off are cut off, all of them: they need not be sorted.
  const floor = ((1 - topP) * total) / ids.length
  const large = ids
    .filter(id => probabilities[id]! >= floor)
    .sort((a, b) => probabilities[b]! - probabilities[a]! || a - b)
  let sum = 0
  const end = large.findIndex(id => (sum += probabilities[id]!) >= topP * total)
  return end < 0 ? large : large.slice(0, end + 1)
}

/** `ids`: all when undefined. */
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
  /** The k largest so far, the smallest last. */
  const largest = new Float32Array(k).fill(-Infinity)
  for (const value of values) {
    if (value <= largest[k - 1]!) continue
    let place = k - 1
    for (; place > 0 && largest[place - 1]! < value; place--) largest[place] = largest[place - 1]!
    largest[place] = value
  }
  return largest[k - 1]!
}
