/**
 * Blocks that a worker has cached, least recently used evicted first. A block's id names all
 * the text up to its end, so a prompt finds what it shares as a leading run of ids.
 */
export class PrefixCache {
  #capacity: number
  /** A Map keeps insertion order: the first key is the least recently used. */
  readonly #blocks = new Map<number, true>()

  /** In blocks; 0 keeps nothing. */
  constructor(capacity: number) {
    this.#capacity = capacity
  }

  get size(): number {
    return this.#blocks.size
  }

  /** Number of leading blocks in the cache; they count as used now. */
  match(ids: ArrayLike<number>): number {
    let found = 0
    while (found < ids.length && this.#blocks.has(ids[found]!)) found++
    this.#use(ids, found)
    return found
  }

  insert(ids: ArrayLike<number>): void {
    if (this.#capacity === 0) return
    this.#use(ids, ids.length)
    this.#evict()
  }

  /** Evicts what no longer fits. */
  resize(capacity: number): void {
    this.#capacity = capacity
    this.#evict()
  }

  #evict(): void {
    for (const oldest of this.#blocks.keys()) {
      if (this.#blocks.size <= this.#capacity) break
      this.#blocks.delete(oldest)
    }
  }

  /**
   * From the last to the first: a block is useless without those before it, so it must be evicted before
   * them.
   */
  #use(ids: ArrayLike<number>, count: number): void {
    for (let i = count - 1; i >= 0; i--) {
      this.#blocks.delete(ids[i]!)
      this.#blocks.set(ids[i]!, true)
    }
  }
}
