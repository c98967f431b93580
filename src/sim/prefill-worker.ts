/**
 * A prefill worker: prompts in order of arrival, read in steps of at most `tokensPerStep` tokens that may end inside a prompt (chunked
 * prefill) and may hold several. Leading blocks that its prefix cache holds are not read again; the last token always is, for it makes
 * the first output token.
 */
import { type CostProfile, prefillUs } from '../cost/profile.ts'
import { PrefixCache } from './prefix-cache.ts'
import type { RequestPool } from './requests.ts'
import { SlotQueue } from './slot-queue.ts'

export interface PrefillLimits {
  readonly tokensPerStep: number
  readonly blockTokens: number
  /** 0: no prefix cache. */
  readonly cacheTokens: number
}

export class PrefillWorker {
  busy = false
  /** Prompt tokens taken from the cache, and all that came. */
  hitTokens = 0
  promptTokens = 0

  readonly #pool: RequestPool
  readonly #profile: CostProfile
  readonly #limits: PrefillLimits
  readonly #cache: PrefixCache
  readonly #queue = new SlotQueue()
  /** Tokens that the head of the queue has still to read; 0 when it has not begun. */
  #headLeft = 0
  /** Requests whose last token the running step reads. */
  readonly #ending = new SlotQueue()

  constructor(pool: RequestPool, profile: CostProfile, limits: PrefillLimits) {
    this.#pool = pool
    this.#profile = profile
    this.#limits = limits
    this.#cache = new PrefixCache(Math.floor(limits.cacheTokens / limits.blockTokens))
  }

  enqueue(slot: number): void {
    this.#queue.push(slot)
  }

  /** How long the step takes that begins now; undefined when there is nothing to read. */
  startStep(): number | undefined {
    let room = this.#limits.tokensPerStep
    while (room > 0 && this.#queue.size > 0) {
      if (this.#headLeft === 0) this.#headLeft = this.#tokensToRead(this.#queue.first)
      const read = Math.min(room, this.#headLeft)
      room -= read
      this.#headLeft -= read
      if (this.#headLeft === 0) this.#ending.push(this.#queue.shift())
    }
    const tokens = this.#limits.tokensPerStep - room
    this.busy = tokens > 0
    return this.busy ? prefillUs(this.#profile, tokens) : undefined
  }

  /** Calls `done` for each request whose prompt has been read, in order. */
  endStep(done: (slot: number) => void): void {
    while (this.#ending.size > 0) {
      const slot = this.#ending.shift()
      this.#cache.insert(this.#pool.blocks[slot]!)
      done(slot)
    }
  }

  #tokensToRead(slot: number): number {
    const prompt = this.#pool.promptTokens[slot]!
    const hits = Math.min(this.#cache.match(this.#pool.blocks[slot]!) * this.#limits.blockTokens, prompt - 1)
    this.hitTokens += hits
    this.promptTokens += prompt
    return prompt - hits
  }
}
