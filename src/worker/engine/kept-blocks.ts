/**
 * Blocks of finished prefill legs, held until the server releases them: after a decode worker has read them
 * or the lease has expired.
 */
import { randomUUID } from 'node:crypto'
import type { BackEnd, BackEndSequence, KeptBlocks } from '../types.ts'
import type { KvBlocks } from './kv-blocks.ts'

export class KeptLeases {
  /** Blocks of all leases. A shared block counts once per lease. */
  blocks = 0
  readonly #held = new Set<KeptBlocks>()
  readonly #pool: KvBlocks
  readonly #backEnd: BackEnd
  readonly #released: () => void

  /** `released` is called when blocks become free. */
  constructor(pool: KvBlocks, backEnd: BackEnd, released: () => void) {
    this.#pool = pool
    this.#backEnd = backEnd
    this.#released = released
  }

  get size(): number {
    return this.#held.size
  }

  /** Takes over one reference to each block. */
  keep(sequence: BackEndSequence, blocks: Int32Array, tokens: number): KeptBlocks {
    const lease: KeptBlocks = {
      id: randomUUID(),
      blockIds: [...blocks],
      tokens,
      export: from => {
        if (!this.#held.has(lease)) throw new Error(`the blocks of lease ${lease.id} were released`)
        return { bytes: this.#backEnd.exportKv(sequence, blocks, from, tokens), tokens }
      },
      release: () => {
        if (!this.#held.delete(lease)) return
        this.blocks -= blocks.length
        for (let i = blocks.length - 1; i >= 0; i--) this.#pool.giveBack(blocks[i]!)
        this.#released()
      },
    }
    this.#held.add(lease)
    this.blocks += blocks.length
    return lease
  }

  close(): void {
    for (const lease of this.#held) lease.release()
  }
}
