/**
 * Byte-pair encoding of one word: merges the pair of lowest rank, leftmost first, until no pair is in the
 * list.
 */

export interface Merges {
  /**
   * Merged token and rank of a pair at `left × size + right`: rank × size + merged; undefined if it is never
   * merged.
   */
  readonly pairs: ReadonlyMap<number, number>
  /** Tokens in the vocabulary. */
  readonly size: number
}

/** Longer words use a heap: scanning every pair for every merge takes quadratic time. */
const SHORT = 48

/** `tokens` starts with one token per byte and is merged in place; returns how many are left. */
export function joinPairs(tokens: Int32Array, count: number, merges: Merges): number {
  return count <= SHORT ? joinShort(tokens, count, merges) : joinLong(tokens, count, merges)
}

export function joinShort(tokens: Int32Array, count: number, { pairs, size }: Merges): number {
  for (;;) {
    let best = Infinity
    let at = -1
    for (let i = 0; i + 1 < count; i++) {
      const found = pairs.get(tokens[i]! * size + tokens[i + 1]!)
      if (found !== undefined && found < best) [best, at] = [found, i]
    }
    if (at < 0) return count
    tokens[at] = best % size
    tokens.copyWithin(at + 1, at + 2, count)
    count--
  }
}

/**
 * Neighbours are linked. The heap holds every pair that can be merged as rank × count + position; entries
 * that have changed since are skipped. Numbers are in typed arrays, because a prompt may be a single word.
 */
export function joinLong(tokens: Int32Array, count: number, { pairs, size }: Merges): number {
  const next = new Int32Array(count)
  const previous = new Int32Array(count)
  /**
   * Per position: the rank of the pair that starts there (−1 if it is never merged), and the merged token.
   */
  const ranks = new Int32Array(count)
  const joined = new Int32Array(count)
  for (let i = 0; i < count; i++) {
    next[i] = i + 1 < count ? i + 1 : -1
    previous[i] = i - 1
  }
  /** Words that repeat one character look up the same pair again and again. */
  let [lastPair, lastFound]: [number, number | undefined] = [-1, undefined]
  const look = (left: number): boolean => {
    const right = next[left]!
    const pair = right < 0 ? -1 : tokens[left]! * size + tokens[right]!
    if (pair !== lastPair) [lastPair, lastFound] = [pair, pair < 0 ? undefined : pairs.get(pair)]
    if (lastFound === undefined) {
      ranks[left] = -1
      return false
    }
    const rank = Math.floor(lastFound / size)
    ranks[left] = rank
    joined[left] = lastFound - rank * size
    return true
  }
  // One entry per pair; each merge removes one and adds at most two.
  const heap = new KeyHeap(2 * count)
  for (let i = 0; i < count; i++) if (look(i)) heap.push(ranks[i]! * count + i)
  while (heap.length > 0) {
    const key = heap.pop()
    const rank = Math.floor(key / count)
    const at = key - rank * count
    // Tokens only grow, so a pair of this rank at this position is still the same pair.
    if (ranks[at] !== rank) continue
    const right = next[at]!
    tokens[at] = joined[at]!
    ranks[right] = -1
    next[at] = next[right]!
    if (next[at]! >= 0) previous[next[at]!] = at
    const before = previous[at]!
    if (before >= 0 && look(before)) heap.push(ranks[before]! * count + before)
    if (look(at)) heap.push(ranks[at]! * count + at)
  }
  let left = 0
  for (let i = 0; i >= 0; i = next[i]!) tokens[left++] = tokens[i]!
  return left
}

/** A min-heap of numbers. */
class KeyHeap {
  length = 0
  readonly #keys: Float64Array

  constructor(most: number) {
    this.#keys = new Float64Array(most)
  }

  push(key: number): void {
    const keys = this.#keys
    let i = this.length++
    while (i > 0) {
      const parent = (i - 1) >> 1
      if (keys[parent]! <= key) break
      keys[i] = keys[parent]!
      i = parent
    }
    keys[i] = key
  }

  pop(): number {
    const keys = this.#keys
    const first = keys[0]!
    const moved = keys[--this.length]!
    let i = 0
    for (;;) {
      let child = 2 * i + 1
      if (child >= this.length) break
      if (child + 1 < this.length && keys[child + 1]! < keys[child]!) child++
      if (keys[child]! >= moved) break
      keys[i] = keys[child]!
      i = child
    }
    keys[i] = moved
    return first
  }
}
