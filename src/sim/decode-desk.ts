/** Where requests are given their decode workers: the policy, or the policies, and what each of them sees of the workers' loads. */
import type { Candidate, Decision, DecodePolicy, RoutableRequest } from '../policy/decode-policy.ts'
import type { Random } from '../math/random.ts'

export interface DecodeDesk {
  /** `index`: number of the request in order of arrival. Times never fall from one call to the next. */
  pick(index: number, request: RoutableRequest, nowUs: number): Decision
  dispatched(index: number, request: RoutableRequest, worker: number, nowUs: number): void
  released(index: number, request: RoutableRequest, worker: number, nowUs: number): void
}

export interface DeskOptions {
  readonly workers: number
  /** Of the run: each has its gateway from the start. */
  readonly requests: number
  /** Of ties. All gateways draw from one stream: with views that are not old they decide what one gateway would, draw for draw. */
  readonly ties: Random
  /** Of which request goes to which gateway. */
  readonly entrances: Random
}

/** One gateway, which has seen every dispatch and every end. */
export function oneDesk(policy: DecodePolicy, { workers, ties }: DeskOptions): DecodeDesk {
  const candidates = idleCandidates(workers)
  const context = { random: ties.uniform }
  return {
    pick: (_, request) => policy.pick(request, candidates, context),
    dispatched(_, request, worker) {
      policy.dispatched?.(request, worker)
      candidates[worker]!.inflight++
    },
    released(_, request, worker) {
      policy.released?.(request, worker)
      candidates[worker]!.inflight--
    },
  }
}

export function idleCandidates(workers: number): (Candidate & { inflight: number })[] {
  return Array.from({ length: workers }, (_, worker) => ({ worker, inflight: 0 }))
}
