/**
 * Chooses the workers of a request and gives them back. In a single process this is the router; in a relay it
 * is the owner process, which responds later. The flow of a request is the same for both.
 */
import type { Registry } from '../../cluster/registry.ts'
import type { Role } from '../../cluster/worker.ts'
import type { Turn } from '../../policy/conversations.ts'
import { type DecodePlacement, DispatchPlacement, type Placement } from './placement.ts'
import type { HandoffExperts } from './read-experts.ts'
import type { RetryBudget } from './retry-budget.ts'
import type { Router } from './router.ts'

type Soon<T> = T | Promise<T>

/** Placements are undefined when no worker takes requests. `exclude`: ids or URLs of workers that failed. */
export interface PlacementClient {
  /** Whether a worker of this role takes requests. */
  any(role: Role, exclude: ReadonlySet<string>): Soon<boolean>
  toPrefill(
    prefixKey: number | undefined,
    tokens: number,
    exclude: ReadonlySet<string>,
  ): Soon<Placement | undefined>
  /** `handoff`: undefined without prefill. */
  toDecode(
    id: string,
    handoff: HandoffExperts | undefined,
    tokens: number,
    exclude: ReadonlySet<string>,
    turn?: Turn,
  ): Soon<DecodePlacement | undefined>
  /** Without a remote prefill: undefined if the turn needs one. */
  toHolder(id: string, turn: Turn, exclude: ReadonlySet<string>): Soon<DecodePlacement | undefined>
  /** The least loaded decode worker, for a request without a client. */
  toRelease(exclude: ReadonlySet<string>): Soon<Placement | undefined>
  /** The retry budget is a share of these. */
  requestCame(): void
  /** Whether another worker may be tried; takes one retry from the budget if so. */
  mayRetry(role: Role, exclude: ReadonlySet<string>): Soon<boolean>
  /** The same for a decode worker that goes on with a broken stream, from a budget of its own. */
  mayResume(exclude: ReadonlySet<string>): Soon<boolean>
}

export interface PlacementParts {
  readonly registry: Pick<Registry, 'hasCandidates' | 'candidates' | 'dispatch'>
  readonly router: Pick<Router, 'toPrefill' | 'toDecode' | 'toHolder'>
  readonly budget: Pick<RetryBudget, 'requestCame' | 'take'>
  readonly resumeBudget: Pick<RetryBudget, 'requestCame' | 'take'>
}

/** Responds at once. */
export interface LocalPlacementClient extends PlacementClient {
  any(role: Role, exclude: ReadonlySet<string>): boolean
  toPrefill: Router['toPrefill']
  toDecode: Router['toDecode']
  toHolder: Router['toHolder']
  toRelease(exclude: ReadonlySet<string>): Placement | undefined
  mayRetry(role: Role, exclude: ReadonlySet<string>): boolean
  mayResume(exclude: ReadonlySet<string>): boolean
}

export function localPlacementClient({
  registry,
  router,
  budget,
  resumeBudget,
}: PlacementParts): LocalPlacementClient {
  const any = (role: Role, exclude: ReadonlySet<string>) =>
    registry.hasCandidates(role, performance.now(), exclude)
  return {
    any,
    toPrefill: (prefixKey, tokens, exclude) => router.toPrefill(prefixKey, tokens, exclude),
    toDecode: (...asked) => router.toDecode(...asked),
    toHolder: (...asked) => router.toHolder(...asked),
    toRelease(exclude) {
      const nowMs = performance.now()
      const [least] = registry
        .candidates('decode', nowMs, exclude)
        .toSorted((a, b) => a.inflight - b.inflight)
      const dispatch = least && registry.dispatch('decode', least.worker, 0, nowMs)
      return dispatch && new DispatchPlacement(dispatch)
    },
    requestCame() {
      budget.requestCame()
      resumeBudget.requestCame()
    },
    mayRetry: (role, exclude) => any(role, exclude) && budget.take(),
    mayResume: exclude => any('decode', exclude) && resumeBudget.take(),
  }
}
