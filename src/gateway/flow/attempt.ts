/** Attempts: try a worker, judge how it went, and try another one within the retry budget. */
import type { Role, WorkerSpec } from '../../cluster/worker.ts'
import type { Exchange } from '../http/exchange.ts'
import type { Refusal } from '../http/refusal.ts'
import type { RequestEvents } from '../observe/request-observer.ts'
import type { FlowContext } from './context.ts'

/** How one attempt went. */
export type Tried<T> =
  /** No further attempt is needed, or would help. */
  | { readonly kind: 'done'; readonly result: T }
  | {
      readonly kind: 'failed'
      readonly leg: Role
      readonly cause: string
      /** Workers that the next attempt avoids. */
      readonly excluded: ReadonlySet<string>
      /** What the client is told if there is no further attempt. */
      readonly refusal: Refusal
    }

export const done = <T>(result: T): Tried<T> => ({ kind: 'done', result })

type Failed = Extract<Tried<never>, { kind: 'failed' }>

export const failed = (
  leg: Role,
  cause: string,
  excluded: ReadonlySet<string>,
  refusal: Refusal,
): Failed => ({ kind: 'failed', leg, cause, excluded, refusal })

interface Attempting {
  readonly exchange: Exchange
  readonly events: RequestEvents
}

/**
 * Calls `tryOnce` until it is done, or rejects with the refusal of the last attempt. Attempts are numbered
 * from 1.
 */
export async function attempts<T>(
  ctx: FlowContext,
  of: Attempting,
  tryOnce: (number: number) => Promise<Tried<T>>,
): Promise<T> {
  for (let number = 1; ; number++) {
    const tried = await tryOnce(number)
    if (tried.kind === 'done') return tried.result
    const { leg, cause, excluded, refusal } = tried
    const mayRetry = number <= ctx.settings.retries.max && (await ctx.placement.mayRetry(leg, excluded))
    if (!mayRetry) throw refusal
    of.events.retried(leg, cause)
    await of.exchange.pause(backoffMs(ctx.settings.retries.backoffMs, number, Math.random))
  }
}

/** The next attempt avoids this worker, and all ranks of a server that refuses connections. */
export function exclude(excluded: Set<string>, { id, url, dpRank }: WorkerSpec, cause: string): void {
  excluded.add(id)
  if (dpRank !== undefined && cause === 'connect') excluded.add(url)
}

/** Failures after which the health of a worker is checked at once. */
export function isUnreachable(cause: string): boolean {
  return cause === 'connect' || cause === 'reset' || cause === 'timeout'
}

/** Doubles with each attempt. Jitter keeps requests that failed together from returning together. */
export function backoffMs(baseMs: number, attempt: number, random: () => number): number {
  return Math.min(2_000, baseMs * 2 ** (attempt - 1)) * (0.5 + random() / 2)
}
