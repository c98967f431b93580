import type { Candidate, DecodePolicy } from './decode-policy.ts'
import type { UnionCost } from './step-cost.ts'
import { DEFAULT_COST } from './union.ts'

/** Distinct experts that one request more adds to a step of a usual batch, per layer. */
const ADDED_EXPERTS = 4
/**
 * The holder counts as at most one request fewer, and this share of the mean load. It bounds what a wrong
 * memory can cost.
 */
const MAX_SHARE = 0.25

/**
 * Sends turns of a conversation to the worker that holds their KV cache, for a policy that compares loads:
 * the holder counts as fewer requests, as many as make a step longer by what a step there saves.
 */
export function preferHolder(policy: DecodePolicy, cost: UnionCost = DEFAULT_COST): DecodePolicy {
  const perRequest = cost.perRequest + ADDED_EXPERTS * cost.perExpert
  return {
    ...policy,
    pick(request, candidates, ctx) {
      const { holder } = request
      if (holder === undefined) return policy.pick(request, candidates, ctx)
      const mean = candidates.reduce((sum, { inflight }) => sum + inflight, 0) / candidates.length
      const bonus = Math.min(holder.savedUsPerStep / perRequest, 1 + MAX_SHARE * mean)
      const seen = candidates.map(candidate =>
        candidate.worker === holder.worker ? lighter(candidate, bonus) : candidate,
      )
      return policy.pick(request, seen, ctx)
    },
  }
}

/** A load below 0 is fine: on an idle cluster the holder is still preferred. */
function lighter(candidate: Candidate, bonus: number): Candidate {
  const { inflight, tokens } = candidate
  const left = inflight - bonus
  return {
    ...candidate,
    inflight: left,
    tokens: tokens === undefined ? undefined : tokens * Math.max(0, left / Math.max(1, inflight)),
  }
}
