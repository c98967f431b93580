/**
 * Which decode worker still has the KV cache of a conversation, and what it saves to send the next turn
 * there. The memory holds hashes, counts and signatures, never text. It may be wrong, because workers evict:
 * they then fetch or compute what they lack, and the response is the same. A worker that had to compute a
 * prompt it was expected to have gets no turns without prefill for a while.
 */
import type { Candidate, KvHolder, RoutableRequest } from './decode-policy.ts'

/** A request as a turn of a conversation. */
export interface Turn {
  /** Hashes of ever longer starts of the prompt; the next turn has the last of them too. Not empty. */
  readonly keys: readonly number[]
  /** Length of the prompt, in the same estimate for all turns. */
  readonly tokens: number
}

/** Times that a turn on its last worker saves, in microseconds. `cost/profile.ts` derives them. */
export interface TurnCost {
  readonly transferUs: number
  readonly transferPerTokenUs: number
  readonly prefillUs: number
  readonly prefillPerTokenUs: number
}

/** Of profile h200-first: 98,304 bytes per token at 50 GB/s. */
export const DEFAULT_TURN_COST: TurnCost = {
  transferUs: 1_000,
  transferPerTokenUs: 98_304 / 50_000,
  prefillUs: 8_000,
  prefillPerTokenUs: 25,
}

export interface ConversationOptions {
  readonly maxEntries: number
  /** After this time the worker has probably evicted the KV cache. */
  readonly keptMs: number
  /** A turn with at most this many new tokens may skip the remote prefill; 0: none may. */
  readonly skipPrefillBelowTokens: number
  readonly cost?: TurnCost
}

/** The last turn of a conversation. */
export interface KeptTurn {
  /** Id of the worker. */
  readonly worker: string
  /** As it was routed: the next turn uses its counts and signature if it skips prefill. */
  readonly request: RoutableRequest
  /** What its signature can be compared with. */
  readonly signedBy?: unknown
  /** Prompt and response. */
  readonly tokens: number
  readonly endedMs: number
}

/** How a turn went that skipped the remote prefill; undefined: unknown. */
export interface SkippedPrefill {
  /** Tokens of the prompt that the worker computed, as it counts them. */
  readonly computedTokens?: number | undefined
  /** From the request to its first token. */
  readonly firstTokenMs?: number | undefined
}

/** A pause after a miss; it doubles with each further one and ends with a hit. */
const PAUSE_MS = 60_000
const MAX_PAUSE_MS = 1_800_000
/** Tokens are counted in two ways and cached in blocks: a miss computes several times what is new. */
const MISS_FACTOR = 2
/** A miss is noticed by time only if computing the prompt takes at least this long: others wait too. */
const MIN_NOTICED_MS = 200

interface Pause {
  untilMs: number
  lengthMs: number
  /** A turn without prefill is on the worker, to see whether it has its KV cache again. */
  trying: boolean
}

/** Before the first response has ended. */
const FIRST_STEPS = 128
/** Weight of a response in the mean number of decode steps. */
const STEPS_WEIGHT = 0.02

export class Conversations {
  readonly #options: ConversationOptions
  readonly #cost: TurnCost
  /** The first key is the least recently used. */
  readonly #turns = new Map<number, KeptTurn>()
  /** Workers that lacked a KV cache, by id. */
  readonly #pauses = new Map<string, Pause>()
  #steps = FIRST_STEPS

  constructor(options: ConversationOptions) {
    this.#options = options
    this.#cost = options.cost ?? DEFAULT_TURN_COST
  }

  get size(): number {
    return this.#turns.size
  }

  /** The last turn of the request's conversation, if its worker probably still has the KV cache. */
  find({ keys }: Turn, nowMs: number): KeptTurn | undefined {
    for (let at = keys.length - 1; at >= 0; at--) {
      const kept = this.#turns.get(keys[at]!)
      if (kept === undefined) continue
      if (nowMs - kept.endedMs <= this.#options.keptMs) return kept
      this.#turns.delete(keys[at]!)
    }
    return undefined
  }

  /** A turn has ended well. `generated`: tokens of its response. */
  ended(
    { keys, tokens }: Turn,
    last: Omit<KeptTurn, 'tokens' | 'endedMs'>,
    generated: number,
    endedMs = performance.now(),
  ): void {
    this.#steps += STEPS_WEIGHT * (generated - this.#steps)
    // One entry per conversation: the turn before is superseded.
    for (const key of keys) this.#turns.delete(key)
    this.#turns.set(keys.at(-1)!, { ...last, tokens: tokens + generated, endedMs })
    for (const oldest of this.#turns.keys()) {
      if (this.#turns.size <= this.#options.maxEntries) break
      this.#turns.delete(oldest)
    }
  }

  /** The worker restarted or is gone. */
  lost(worker: string): void {
    this.#pauses.delete(worker)
    for (const [key, kept] of this.#turns) if (kept.worker === worker) this.#turns.delete(key)
  }

  /** Its worker, preferred for the KV cache that need not be transferred to it. */
  holder({ tokens }: KeptTurn, { worker }: Candidate): KvHolder {
    return this.#saving(worker, this.#cost.transferPerTokenUs * tokens)
  }

  /**
   * Its worker, if it may compute the new tokens itself, without a remote prefill: that saves the prefill
   * and the transfer, and every request there waits while the new tokens are computed. Undefined if nothing
   * is saved, or if the worker lacked the KV cache of a conversation lately.
   */
  holderAlone(
    kept: KeptTurn,
    turn: Turn,
    { worker, inflight }: Candidate,
    nowMs = performance.now(),
  ): KvHolder | undefined {
    const pause = this.#pauses.get(kept.worker)
    if (pause !== undefined && (pause.trying || nowMs < pause.untilMs)) return undefined
    const { transferUs, transferPerTokenUs, prefillUs, prefillPerTokenUs } = this.#cost
    const fresh = Math.max(0, turn.tokens - kept.tokens)
    if (fresh > this.#options.skipPrefillBelowTokens) return undefined
    const transfer = transferUs + transferPerTokenUs * turn.tokens
    const saved = transfer + prefillUs - prefillPerTokenUs * fresh * inflight
    return saved > 0 ? this.#saving(worker, saved) : undefined
  }

  /** A turn goes to its worker without a remote prefill. Tell how it went with `skipped`. */
  skips({ worker }: KeptTurn): void {
    const pause = this.#pauses.get(worker)
    if (pause !== undefined) pause.trying = true
  }

  /**
   * A turn that skipped the remote prefill has ended; call before `ended`. `how`: undefined if it failed.
   * Returns true if its worker lacked the KV cache. It evicts what was used least recently, so conversations
   * that have been idle as long are forgotten too.
   */
  skipped(kept: KeptTurn, turn: Turn, how: SkippedPrefill | undefined, nowMs = performance.now()): boolean {
    const { worker } = kept
    const pause = this.#pauses.get(worker)
    const missed = how && this.#missed(kept, turn, how)
    if (missed !== true) {
      if (missed === false) this.#pauses.delete(worker)
      else if (pause !== undefined) pause.trying = false
      return false
    }
    for (const [key, other] of this.#turns)
      if (other.worker === worker && other.endedMs <= kept.endedMs) this.#turns.delete(key)
    // Turns that were sent before the miss was known are no further misses.
    if (pause !== undefined && !pause.trying && nowMs < pause.untilMs) return true
    const lengthMs = pause === undefined ? PAUSE_MS : Math.min(MAX_PAUSE_MS, 2 * pause.lengthMs)
    this.#pauses.set(worker, { untilMs: nowMs + lengthMs, lengthMs, trying: false })
    return true
  }

  /** Undefined if nothing tells. */
  #missed(
    { tokens }: KeptTurn,
    turn: Turn,
    { computedTokens, firstTokenMs }: SkippedPrefill,
  ): boolean | undefined {
    if (computedTokens !== undefined)
      return computedTokens > MISS_FACTOR * this.#options.skipPrefillBelowTokens
    const { prefillUs, prefillPerTokenUs } = this.#cost
    const missMs = (prefillPerTokenUs * Math.min(tokens, turn.tokens)) / 1000
    if (firstTokenMs === undefined || missMs < MIN_NOTICED_MS) return undefined
    const fresh = Math.max(0, turn.tokens - tokens)
    return firstTokenMs > (prefillUs + prefillPerTokenUs * fresh) / 1000 + missMs / 2
  }

  #saving(worker: number, savedUs: number): KvHolder {
    return { worker, savedUsPerStep: savedUs / Math.max(1, this.#steps) }
  }
}
