/**
 * Picks the decode workers of requests: holds the policy, or one policy per gateway, and the loads that each
 * of them sees.
 */
import type { Candidate, Decision, DecodePolicy, RoutableRequest } from '../policy/decode-policy.ts'
import type { Random } from '../math/random.ts'

export interface DecodeDispatcher {
  /** `index`: number of the request in order of arrival. Times never decrease between calls. */
  pick(index: number, request: RoutableRequest, nowUs: number): Decision
  dispatched(index: number, request: RoutableRequest, worker: number, nowUs: number): void
  released(index: number, request: RoutableRequest, worker: number, end: DecodeEnd): void
}

export interface DecodeEnd {
  readonly nowUs: number
  /** Mean time between its tokens; undefined if there were few. */
  readonly tokenUs: number | undefined
}

export interface DispatcherOptions {
  readonly workers: number
  /** Number of requests in the run: each has its gateway from the start. */
  readonly requests: number
  /**
   * Random numbers for ties. All gateways draw from one stream: with exact views they decide exactly as one
   * gateway would.
   */
  readonly ties: Random
  /** Random numbers for the gateway of each request. */
  readonly entrances: Random
}

/** One gateway that sees every dispatch and every end. */
export function exactDispatcher(
  policy: DecodePolicy,
  { workers, ties }: DispatcherOptions,
): DecodeDispatcher {
  const candidates = idleCandidates(workers)
  const context = { random: ties.uniform }
  return {
    pick: (_, request) => policy.pick(request, candidates, context),
    dispatched(_, request, worker) {
      policy.dispatched?.(request, worker)
      addLoad(candidates[worker]!, request, 1)
    },
    released(_, request, worker, { tokenUs }) {
      policy.released?.(request, worker, tokenUs)
      addLoad(candidates[worker]!, request, -1)
    },
  }
}

export interface LoadedCandidate extends Candidate {
  inflight: number
  tokens: number
}

export function idleCandidates(workers: number): LoadedCandidate[] {
  return Array.from({ length: workers }, (_, worker) => ({ worker, inflight: 0, tokens: 0 }))
}

/** As a gateway counts: requests, and the tokens of their prompts. */
export function addLoad(
  candidate: LoadedCandidate,
  { promptTokens = 0 }: RoutableRequest,
  sign: 1 | -1,
): void {
  candidate.inflight += sign
  candidate.tokens += sign * promptTokens
}
