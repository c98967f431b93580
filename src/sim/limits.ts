/** Limits of the workers of a run, apart from the cost profile. */
export interface Limits {
  /** Requests in one decode step. */
  readonly maxBatch: number
  /** Context tokens on one decode worker (default: the profile's capacity). */
  readonly kvTokens: number
  /** Per layer, for expert-parallel decode workers. 0, because it has not been measured. */
  readonly allToAllUs: number
  /** Prompt tokens per prefill step. */
  readonly prefillTokensPerStep: number
  /** Prompt tokens that each prefill worker caches; 0 is no prefix cache. */
  readonly prefixCacheTokens: number
  /** Decode workers keep the KV cache of ended requests where running ones leave room. */
  readonly decodeCaching: boolean
  /** Tokens of a prefix block; a recorded workload with blocks brings its own length. */
  readonly blockTokens: number
  /** Leading tokens that a prefill policy's prefix key covers. */
  readonly prefixKeyTokens: number
}

/** Batches and chunks are vLLM's defaults. */
export const DEFAULT_LIMITS: Omit<Limits, 'kvTokens'> = {
  maxBatch: 256,
  allToAllUs: 0,
  prefillTokensPerStep: 8_192,
  prefixCacheTokens: 0,
  decodeCaching: false,
  blockTokens: 16,
  prefixKeyTokens: 1_024,
}
