/**
 * A fixed pool of KV blocks with reference counts and a prefix cache. A full block is found by its chain
 * hash, the SHA-256 of its parent’s hash and its own token ids, so two prompts never share a block by chance.
 * Unreferenced blocks are kept in an LRU list and evicted when their place is needed. Blocks without a hash
 * cannot be found again and are reused first.
 */
import { hash } from 'node:crypto'

/** Binary string of 32 characters, one byte each. */
export type ChainHash = string

export class KvBlocks {
  readonly count: number
  readonly blockTokens: number
  /** Unreferenced blocks. */
  free: number

  readonly #references: Int32Array
  readonly #hashes: (ChainHash | undefined)[]
  readonly #byHash = new Map<ChainHash, number>()
  /**
   * Doubly linked ring of the free blocks with a sentinel: next[count] is the first, previous[count] the
   * last.
   */
  readonly #next: Int32Array
  readonly #previous: Int32Array
  readonly #emptied: (block: number) => void

  /**
   * `emptied` is called when a block loses its content, because it was evicted or released without a hash.
   */
  constructor(count: number, blockTokens: number, emptied: (block: number) => void = () => {}) {
    this.count = count
    this.blockTokens = blockTokens
    this.free = count
    this.#emptied = emptied
    this.#references = new Int32Array(count)
    this.#hashes = Array.from({ length: count }, () => undefined)
    this.#next = Int32Array.from({ length: count + 1 }, (_, block) => (block + 1) % (count + 1))
    this.#previous = Int32Array.from({ length: count + 1 }, (_, block) => (block + count) % (count + 1))
    this.#next[count] = 0
    this.#previous[0] = count
  }

  get cached(): number {
    return this.#byHash.size
  }

  references(block: number): number {
    return this.#references[block]!
  }

  /** True if the block is in the prefix cache. */
  isCached(block: number): boolean {
    return this.#hashes[block] !== undefined
  }

  find(chain: ChainHash): number | undefined {
    return this.#byHash.get(chain)
  }

  /** Free blocks that remain if `found` are shared; those of them that are free now do not count. */
  freeBeside(found: readonly number[]): number {
    let free = this.free
    for (const block of found) if (this.#references[block] === 0) free--
    return free
  }

  /** Adds a reference to a block that was found. */
  share(block: number): void {
    if (this.#references[block]!++ === 0) this.#unlink(block)
  }

  /** Takes an empty block. The caller has checked `free`. */
  take(): number {
    const block = this.#next[this.count]!
    if (block === this.count) throw new RangeError('no free block')
    this.#unlink(block)
    this.#references[block] = 1
    if (this.#hashes[block] !== undefined) this.#empty(block)
    return block
  }

  /**
   * Removes a reference. Release the last block of a sequence first: it is then evicted first, which keeps
   * prefixes intact as long as possible.
   */
  giveBack(block: number): void {
    if (--this.#references[block]! > 0) return
    if (this.#hashes[block] !== undefined) {
      this.#link(block, this.#previous[this.count]!)
      return
    }
    this.#emptied(block)
    this.#link(block, this.count)
  }

  /**
   * Adds a full, computed block to the prefix cache. If two have the same content, only the first is added.
   */
  remember(block: number, chain: ChainHash): void {
    if (this.#hashes[block] !== undefined || this.#byHash.has(chain)) return
    this.#hashes[block] = chain
    this.#byHash.set(chain, block)
  }

  /** Clears the prefix cache. Returns false and does nothing while any block is in use. */
  reset(): boolean {
    if (this.free < this.count) return false
    for (const block of this.#byHash.values()) this.#empty(block)
    return true
  }

  #empty(block: number): void {
    this.#byHash.delete(this.#hashes[block]!)
    this.#hashes[block] = undefined
    this.#emptied(block)
  }

  #unlink(block: number): void {
    const [before, after] = [this.#previous[block]!, this.#next[block]!]
    this.#next[before] = after
    this.#previous[after] = before
    this.free--
  }

  #link(block: number, before: number): void {
    const after = this.#next[before]!
    this.#next[before] = block
    this.#previous[block] = before
    this.#next[block] = after
    this.#previous[after] = block
    this.free++
  }
}

/** Hash of a full block that follows `parent`; the first block of a chain follows its salt. */
export function chainHash(parent: ChainHash, ids: Int32Array, from: number, to: number): ChainHash {
  const bytes = Buffer.allocUnsafe(parent.length + 4 * (to - from))
  bytes.write(parent, 0, 'latin1')
  bytes.set(new Uint8Array(ids.buffer, ids.byteOffset + 4 * from, 4 * (to - from)), parent.length)
  return hash('sha256', bytes, 'binary')
}

/**
 * Parent hash of a chain’s first block: also a hash, so that no salt is mistaken for part of another chain.
 */
export function chainRoot(salt: string): ChainHash {
  return hash('sha256', salt, 'binary')
}
