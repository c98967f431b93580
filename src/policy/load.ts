import type { Candidate } from './decode-policy.ts'

/**
 * Prompts differ in length by chance, which must not undo a good match: tokens count from this many times the
 * mean on. Chosen on calibration traces among 1, 1.25 and 1.5: 1 costs half a point of p50, 1.5 lets requests
 * wait for KV.
 */
const TOKEN_SLACK = 1.25
/**
 * Tokens make a worker look at most this many times as loaded as its requests. Its KV capacity is unknown:
 * without a limit, one prompt that is far longer than all others would keep its worker empty. Prompts of
 * similar length never reach it.
 */
const MAX_FACTOR = 4

/**
 * Load of each candidate in requests: its requests in flight, or more if its share of the prompt tokens is
 * much larger than its share of the requests. Bringing long requests together would otherwise fill the KV
 * cache of a worker whose number of requests looks normal: requests wait there, or are preempted. Only
 * requests count if tokens are unknown.
 */
export function loadsOf(candidates: readonly Candidate[]): Float64Array {
  let [requests, tokens] = [0, 0]
  for (const candidate of candidates) {
    requests += candidate.inflight
    tokens += candidate.tokens ?? NaN
  }
  const perToken = tokens > 0 ? requests / tokens / TOKEN_SLACK : 0
  return Float64Array.from(candidates, candidate =>
    perToken > 0 ? withTokens(candidate.inflight, candidate.tokens! * perToken) : candidate.inflight,
  )
}

const withTokens = (requests: number, byTokens: number): number =>
  Math.max(requests, Math.min(byTokens, MAX_FACTOR * requests))
