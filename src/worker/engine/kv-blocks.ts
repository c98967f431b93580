/**
 * A fixed pool of KV blocks with reference counts and a prefix cache. A full block is found again by the hash of its chain: SHA-256 of
 * its parent's hash and its own token ids, so that two prompts never share a block by chance. Blocks that nobody refers to wait in a
 * list, the least recently used first; one is evicted when its place is needed. Those without a hash are of no use to anyone and go first.
 */
import { hash } from 'node:crypto'

/** Binary text: 32 characters, a byte each. */
export type ChainHash = string

export class KvBlocks {
  readonly count: number
  readonly blockTokens: number
  /** Blocks that nobody refers to. */
  free: number

  readonly #references: Int32Array
  readonly #hashes: (ChainHash | undefined)[]
  readonly #byHash = new Map<ChainHash, number>()
  /** A ring of the free blocks with a mark between its ends: next[count] is the first, previous[count] the last. */
  readonly #next: Int32Array
  readonly #previous: Int32Array
  readonly #emptied: (block: number) => void

  /** `emptied`: the block has lost its content, because it was evicted or given back without a hash. */
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

  /** Whether the block would be found by a hash. */
  isCached(block: number): boolean {
    return this.#hashes[block] !== undefined
  }

  find(chain: ChainHash): number | undefined {
    return this.#byHash.get(chain)
  }

  /** Free blocks that are left when `found` are shared: those of them that are free now give no room. */
  freeBeside(found: readonly number[]): number {
    let free = this.free
    for (const block of found) if (this.#references[block] === 0) free--
    return free
  }

  /** One more refers to a block that was found. */
  share(block: number): void {
    if (this.#references[block]!++ === 0) this.#unlink(block)
  }

  /** A block with nothing in it. The caller has looked at `free`. */
  take(): number {
    const block = this.#next[this.count]!
    if (block === this.count) throw new RangeError('no free block')
    this.#unlink(block)
    this.#references[block] = 1
    if (this.#hashes[block] !== undefined) this.#empty(block)
    return block
  }

  /** One fewer. Give the last block of a sequence back first: it is evicted first, and a prefix stays whole as long as it can. */
  giveBack(block: number): void {
    if (--this.#references[block]! > 0) return
    if (this.#hashes[block] !== undefined) {
      this.#link(block, this.#previous[this.count]!)
      return
    }
    this.#emptied(block)
    this.#link(block, this.count)
  }

  /** A full block, computed, may be found from now on. Of two with the same content the first is; the other stays its owner's. */
  remember(block: number, chain: ChainHash): void {
    if (this.#hashes[block] !== undefined || this.#byHash.has(chain)) return
    this.#hashes[block] = chain
    this.#byHash.set(chain, block)
  }

  /** Forgets every cached block; false, and nothing done, while any is in use. */
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

/** What the first block of a chain follows: a hash too, so that no salt reads as part of another chain. */
export function chainRoot(salt: string): ChainHash {
  return hash('sha256', salt, 'binary')
}
