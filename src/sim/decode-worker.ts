/**
 * A decode worker with continuous batching: requests join when a step begins and leave when it ends, up to a
 * maximum batch and as long as their context fits the KV cache. If it no longer fits, the request that joined
 * last goes back to the front of the queue, and its context is recomputed in the step in which it returns. A
 * single request always runs, whatever its context.
 */
import { type CostProfile, deviceUs, hostUs, noiseFactor, wholeStepUs } from '../cost/profile.ts'
import type { Random } from '../math/random.ts'
import { PrefixCache } from './prefix-cache.ts'
import type { Replay } from './replay.ts'
import type { RequestPool } from './requests.ts'
import { SlotQueue } from './slot-queue.ts'
import { activeExperts, fullestRankExperts, uniteSteps } from '../cost/union.ts'
import { WindowSums } from './window-sums.ts'

export interface DecodeLimits {
  readonly maxBatch: number
  /** Tokens of context that fit. */
  readonly kvTokens: number
  /** Expert-parallel workers: added to each layer for exchanging tokens between the ranks. */
  readonly allToAllUs: number
  /** Keep the KV cache of ended requests where running ones leave room (default: no). */
  readonly decodeCaching?: boolean
  readonly blockTokens?: number
}

export interface DecodeWorkerOptions {
  readonly replay: Replay
  readonly pool: RequestPool
  readonly profile: CostProfile
  readonly limits: DecodeLimits
  /** [layers] shares of the profile's layers. */
  readonly weights: Float64Array
  /** [ranks][words of a step]; absent with one rank. */
  readonly masks?: Int32Array
  /** Draws the noise of the steps; required if the profile has noise. */
  readonly noise?: Random
  /** Steps take this many times as long as the profile says (default: 1). */
  readonly slowness?: number
}

export class DecodeWorker {
  busy = false
  /** Requests in the step, and their slots, in order of joining. */
  batch = 0
  readonly slots: Int32Array
  /** Requests that were not in the previous step. */
  joined = 0
  /**
   * Distinct experts of the step, and those of the fullest rank (the same with one rank): mean over the
   * profile's layers.
   */
  active = 0
  fullest = 0
  /** Parts of the step, and its time alone on the device; the simulator sets the time of a shared device. */
  hostUs = 0
  deviceUs = 0
  stepUs = 0
  preemptions = 0

  readonly #replay: Replay
  readonly #pool: RequestPool
  readonly #profile: CostProfile
  readonly #limits: DecodeLimits
  readonly #weights: Float64Array
  readonly #masks: Int32Array | undefined
  readonly #noise: Random | undefined
  readonly #slowness: number
  readonly #waiting = new SlotQueue()
  readonly #cache = new PrefixCache(0)
  /** Context of all requests in the batch before the step. */
  #contextTokens = 0
  /**
   * The same for windowed layers, including the token that each request generates in the step; absent if the
   * profile has none.
   */
  readonly #windows: WindowSums | undefined
  /**
   * For each request in the batch: where its experts of this step are, where its row ends, and the tokens
   * left to generate.
   */
  readonly #at: Int32Array
  readonly #rowEnd: Int32Array
  readonly #left: Int32Array
  readonly #union: Int32Array

  constructor({ replay, pool, profile, limits, weights, masks, noise, slowness = 1 }: DecodeWorkerOptions) {
    this.#replay = replay
    this.#pool = pool
    this.#profile = profile
    this.#limits = limits
    this.#weights = weights
    this.#masks = masks
    this.#noise = noise
    this.#slowness = slowness
    this.#windows = profile.decode.windows && new WindowSums(profile.decode.windows)
    this.slots = new Int32Array(limits.maxBatch)
    this.#at = new Int32Array(limits.maxBatch)
    this.#rowEnd = new Int32Array(limits.maxBatch)
    this.#left = new Int32Array(limits.maxBatch)
    this.#union = new Int32Array(replay.wordsPerStep)
  }

  /** Layout of `union` and of a member's words. */
  get shape(): { readonly layers: number; readonly wordsPerLayer: number } {
    return this.#replay
  }

  get waiting(): number {
    return this.#waiting.size
  }

  /** The experts of the step, as bits [layers × words of a layer]; overwritten by the next step. */
  get union(): Int32Array {
    return this.#union
  }

  /**
   * One request of the step that has just begun: its own experts, as bits like `union`, and its context. For
   * timing real steps on a GPU.
   */
  member(index: number): { readonly words: Int32Array; readonly contextTokens: number } {
    const from = this.#at[index]!
    const slot = this.slots[index]!
    const made = this.#pool.decodeTokens[slot]! - this.#left[index]!
    return {
      words: this.#replay.words.subarray(from, from + this.#replay.wordsPerStep),
      contextTokens: this.#pool.promptTokens[slot]! + made + 1,
    }
  }

  enqueue(slot: number): void {
    this.#waiting.push(slot)
  }

  /** Prompt tokens of the request that are in the cache, without the last one, which must be computed. */
  cachedTokens(slot: number): number {
    const { decodeCaching = false, blockTokens = 16 } = this.#limits
    if (!decodeCaching) return 0
    this.#cache.resize(this.#roomForCache())
    return Math.min(
      this.#cache.match(this.#pool.blocks[slot]!) * blockTokens,
      this.#pool.promptTokens[slot]! - 1,
    )
  }

  /** The request has ended: its KV cache stays as long as there is room. */
  keep(slot: number): void {
    if (this.#limits.decodeCaching !== true) return
    this.#cache.resize(this.#roomForCache())
    this.#cache.insert(this.#pool.contextBlocks[slot]!)
  }

  #roomForCache(): number {
    const { kvTokens, blockTokens = 16 } = this.#limits
    return Math.max(0, Math.floor((kvTokens - this.#contextTokens) / blockTokens))
  }

  /** Duration of the step that begins now; undefined if there is no request. */
  startStep(nowUs: number): number | undefined {
    const before = this.#preempt(nowUs)
    const recomputed = this.#admit()
    this.joined = this.batch - before
    this.busy = this.batch > 0
    if (!this.busy) return undefined

    uniteSteps(this.#replay.words, this.#at, this.batch, this.#union)
    this.active = activeExperts(this.#union, this.#weights)
    this.fullest =
      this.#masks === undefined ? this.active : fullestRankExperts(this.#union, this.#weights, this.#masks)
    const exchangeUs = this.#masks === undefined ? 0 : this.#profile.shape.layers * this.#limits.allToAllUs
    const recomputeUs = this.#profile.prefill.perTokenUs * recomputed
    // Each request also attends to its own new token.
    const attended = this.#contextTokens + this.batch
    const factor = this.#slowness * this.#noiseFactor()
    this.hostUs = factor * hostUs(this.#profile, this.batch)
    this.deviceUs =
      factor *
      (deviceUs(this.#profile, this.batch, this.fullest, attended, this.#windows?.sums) +
        exchangeUs +
        recomputeUs)
    this.stepUs = wholeStepUs(this.#profile, this.hostUs, this.deviceUs)
    return this.stepUs
  }

  #noiseFactor(): number {
    const { noise } = this.#profile.decode
    return noise === undefined ? 1 : noiseFactor(noise, this.#noise!.uniform())
  }

  /** Every request gets one more token. Calls `ended` for those that are complete. */
  endStep(ended: (slot: number) => void): void {
    const { slots } = this
    const [at, rowEnd, left] = [this.#at, this.#rowEnd, this.#left]
    const { wordsPerStep, start } = this.#replay
    this.#contextTokens += this.batch
    let kept = 0
    for (let i = 0; i < this.batch; i++) {
      const slot = slots[i]!
      if (--left[i]! === 0) {
        const context = this.#pool.promptTokens[slot]! + this.#pool.decodeTokens[slot]!
        this.#contextTokens -= context
        this.#windows?.leave(context)
        ended(slot)
        continue
      }
      const next = at[i]! + wordsPerStep
      slots[kept] = slot
      // past the recorded steps it starts over
      at[kept] = next === rowEnd[i]! ? start[this.#pool.row[slot]!]! : next
      rowEnd[kept] = rowEnd[i]!
      left[kept] = left[i]!
      kept++
    }
    this.batch = kept
    this.#windows?.grow()
  }

  /** Makes room for one more token per request; returns how many requests stay. */
  #preempt(nowUs: number): number {
    while (this.batch > 1 && this.#contextTokens + this.batch > this.#limits.kvTokens) {
      const last = --this.batch
      const slot = this.slots[last]!
      this.#pool.generated[slot] = this.#pool.decodeTokens[slot]! - this.#left[last]!
      this.#pool.recompute[slot] = 1
      this.#pool.lastTokenUs[slot] = nowUs
      const context = this.#pool.contextTokens(slot)
      this.#contextTokens -= context
      this.#windows?.leave(context + 1)
      this.#waiting.pushFront(slot)
      this.preemptions++
    }
    return this.batch
  }

  /**
   * First come, first served: a request that does not fit blocks those behind it. Returns the tokens to
   * recompute.
   */
  #admit(): number {
    let recomputed = 0
    while (this.#waiting.size > 0 && this.batch < this.#limits.maxBatch) {
      const slot = this.#waiting.first
      const context = this.#pool.contextTokens(slot)
      if (this.batch > 0 && this.#contextTokens + context + this.batch + 1 > this.#limits.kvTokens) break
      this.#waiting.shift()
      recomputed += this.#pool.recompute[slot] === 1 ? context : this.#pool.ownPrefillTokens[slot]!
      this.#pool.recompute[slot] = 0
      this.#pool.ownPrefillTokens[slot] = 0
      this.#contextTokens += context
      this.#windows?.join(context + 1)
      this.#place(slot)
    }
    return recomputed
  }

  #place(slot: number): void {
    const { start, steps, wordsPerStep } = this.#replay
    const row = this.#pool.row[slot]!
    const generated = this.#pool.generated[slot]!
    const i = this.batch++
    this.slots[i] = slot
    this.#at[i] = start[row]! + (generated % steps[row]!) * wordsPerStep
    this.#rowEnd[i] = start[row]! + steps[row]! * wordsPerStep
    this.#left[i] = this.#pool.decodeTokens[slot]! - generated
  }
}
