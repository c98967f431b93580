/** Byte-pair encoding of one word: the pair of lowest rank is joined, the leftmost of equals first, until no pair is in the list. */

export interface Merges {
  /** Joined token and rank of a pair, at `left × size + right`: rank × size + joined; undefined when it is never joined. */
  readonly pairs: ReadonlyMap<number, number>
  /** Tokens of the vocabulary. */
  readonly size: number
}

/** Longer words go through a heap: looking at every pair for every join takes quadratic time. */
const SHORT = 48

/** `tokens` are those of the single bytes at first; how many are left at the end, in place. */
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

/** Neighbours are linked; the heap has every pair that can be joined, and those that have changed since are passed over. */
export function joinLong(tokens: Int32Array, count: number, { pairs, size }: Merges): number {
  const next = Int32Array.from({ length: count }, (_, i) => (i + 1 < count ? i + 1 : -1))
  const previous = Int32Array.from({ length: count }, (_, i) => i - 1)
  const heap = new PairHeap()
  const offer = (left: number) => {
    const right = left < 0 ? -1 : next[left]!
    const found = right < 0 ? undefined : pairs.get(tokens[left]! * size + tokens[right]!)
    if (found !== undefined) heap.push(found, left)
  }
  for (let i = 0; i < count; i++) offer(i)
  while (heap.length > 0) {
    const { key, at } = heap.pop()
    const right = next[at]!
    if (tokens[at]! < 0 || right < 0 || pairs.get(tokens[at]! * size + tokens[right]!) !== key) continue
    tokens[at] = key % size
    tokens[right] = -1
    next[at] = next[right]!
    if (next[at]! >= 0) previous[next[at]!] = at
    offer(previous[at]!)
    offer(at)
  }
  let left = 0
  for (let i = 0; i >= 0; i = next[i]!) tokens[left++] = tokens[i]!
  return left
}

/** Smallest key first, then the smallest place. */
class PairHeap {
  readonly #keys: number[] = []
  readonly #places: number[] = []

  get length(): number {
    return this.#keys.length
  }

  push(key: number, at: number): void {
    let i = this.#keys.length
    this.#keys.push(key)
    this.#places.push(at)
    while (i > 0) {
      const parent = (i - 1) >> 1
      if (!this.#less(i, parent)) return
      this.#swap(i, parent)
      i = parent
    }
  }

  pop(): { key: number; at: number } {
    const last = this.#keys.length - 1
    this.#swap(0, last)
    const popped = { key: this.#keys.pop()!, at: this.#places.pop()! }
    for (let i = 0; ;) {
      let least = i
      for (const child of [2 * i + 1, 2 * i + 2]) if (child < last && this.#less(child, least)) least = child
      if (least === i) return popped
      this.#swap(i, least)
      i = least
    }
  }

  #less(a: number, b: number): boolean {
    return this.#keys[a]! < this.#keys[b]! || (this.#keys[a] === this.#keys[b] && this.#places[a]! < this.#places[b]!)
  }

  #swap(a: number, b: number): void {
    const [key, place] = [this.#keys[a]!, this.#places[a]!]
    this.#keys[a] = this.#keys[b]!
    this.#places[a] = this.#places[b]!
    this.#keys[b] = key
    this.#places[b] = place
  }
}
