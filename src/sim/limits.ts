/** What bounds the workers of a run, apart from the cost profile. */
export interface Limits {
  /** Requests in one decode step. */
  readonly maxBatch: number
  /** Context tokens on one decode worker; the profile's capacity unless told. */
  readonly kvTokens: number
  /** Per layer, for expert-parallel decode workers. Stated as 0: nobody has measured it for us. */
  readonly allToAllUs: number
  /** Prompt tokens that one prefill step reads. */
  readonly prefillTokensPerStep: number
  /** Prompt tokens that each prefill worker keeps; 0 is no prefix cache. */
  readonly prefixCacheTokens: number
  /** Of a prefix block; a recorded workload that has blocks brings its own length. */
  readonly blockTokens: number
  /** Leading tokens that a prefill policy's prefix key covers. */
  readonly prefixKeyTokens: number
}

/** Batches and chunks as vLLM has them by default. */
export const DEFAULT_LIMITS: Omit<Limits, 'kvTokens'> = {
  maxBatch: 256,
  allToAllUs: 0,
  prefillTokensPerStep: 8_192,
  prefixCacheTokens: 0,
  blockTokens: 16,
  prefixKeyTokens: 1_024,
}
