/**
 * Who says which worker a request goes to. In a gateway of one process that is the router beside it; in one of several it is the owner,
 * another process, and answers come later. The flow of a request is the same for both.
 */
import type { Dispatch, Registry } from '../../cluster/registry.ts'
import type { Role } from '../../cluster/worker.ts'
import type { RetryBudget } from './retry-budget.ts'
import type { HandoffExperts } from './read-experts.ts'
import type { DecodePlacement, Router } from './router.ts'

type Soon<T> = T | Promise<T>

export interface PlacementClient {
  /** Whether a worker of this role takes requests. */
  any(role: Role, exclude: ReadonlySet<string>): Soon<boolean>
  /** Undefined when no worker takes requests, as of the next two. */
  toPrefill(
    prefixKey: number | undefined,
    tokens: number,
    exclude: ReadonlySet<string>,
  ): Soon<Dispatch | undefined>
  /** `handoff`: absent when there was no prefill. */
  toDecode(
    id: string,
    handoff: HandoffExperts | undefined,
    tokens: number,
    exclude: ReadonlySet<string>,
  ): Soon<DecodePlacement | undefined>
  /** The least loaded decode worker, for a request that nobody waits for. */
  toRelease(exclude: ReadonlySet<string>): Soon<Dispatch | undefined>
  /** Retries are a share of these. */
  requestCame(): void
  /** Whether another worker may be tried; it is counted then. */
  mayRetry(role: Role, exclude: ReadonlySet<string>): Soon<boolean>
}

export interface PlacementParts {
  readonly registry: Pick<Registry, 'hasCandidates' | 'candidates' | 'dispatch'>
  readonly router: Pick<Router, 'toPrefill' | 'toDecode'>
  readonly budget: Pick<RetryBudget, 'requestCame' | 'take'>
}

/** Answers at once. */
export interface LocalPlacementClient extends PlacementClient {
  any(role: Role, exclude: ReadonlySet<string>): boolean
  toPrefill: Router['toPrefill']
  toDecode: Router['toDecode']
  toRelease(exclude: ReadonlySet<string>): Dispatch | undefined
  mayRetry(role: Role, exclude: ReadonlySet<string>): boolean
}

export function localPlacementClient({ registry, router, budget }: PlacementParts): LocalPlacementClient {
  const any = (role: Role, exclude: ReadonlySet<string>) =>
    registry.hasCandidates(role, performance.now(), exclude)
  return {
    any,
    toPrefill: (prefixKey, tokens, exclude) => router.toPrefill(prefixKey, tokens, exclude),
    toDecode: (id, handoff, tokens, exclude) => router.toDecode(id, handoff, tokens, exclude),
    toRelease(exclude) {
      const nowMs = performance.now()
      const [least] = registry
        .candidates('decode', nowMs, exclude)
        .toSorted((a, b) => a.inflight - b.inflight)
      return least && registry.dispatch('decode', least.worker, 0, nowMs)
    },
    requestCame: () => budget.requestCame(),
    mayRetry: (role, exclude) => any(role, exclude) && budget.take(),
  }
}
