/**
 * A prefill worker: prompts in order of arrival, in steps of at most `tokensPerStep` tokens that may end
 * inside a prompt (chunked prefill) and may hold several. Leading blocks in its prefix cache are skipped,
 * except the last token, which generates the first output token.
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
  /** Prompt tokens taken from the cache, and all prompt tokens. */
  hitTokens = 0
  promptTokens = 0

  readonly #pool: RequestPool
  readonly #profile: CostProfile
  readonly #limits: PrefillLimits
  readonly #cache: PrefixCache
  readonly #queue = new SlotQueue()
  /** Tokens left of the first request in the queue; 0 if it has not begun. */
  #headLeft = 0
  /** Requests whose last token is in the running step. */
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

  /** Duration of the step that begins now; undefined if there is nothing to do. */
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

  /** Calls `done` for each request whose prompt is complete, in order. */
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
