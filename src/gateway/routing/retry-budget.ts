/**
 * Retries as a share of requests. While workers fail now and then there is always one to spare; in an outage retries end, instead of
 * multiplying the load on what is left.
 */
import type { Role, WorkerSpec } from '../../cluster/worker.ts'
import type { RequestContext } from '../flow/context.ts'
import type { Exchange } from '../http/exchange.ts'

const MOST_SAVED = 20

export class RetryBudget {
  readonly #share: number
  #saved = MOST_SAVED / 2

  constructor(share: number) {
    this.#share = share
  }

  requestCame(): void {
    this.#saved = Math.min(MOST_SAVED, this.#saved + this.#share)
  }

  /** How many tries more there may be now. */
  get left(): number {
    return Math.floor(this.#saved)
  }

  /** Whether one more try may be made; it is counted then. */
  take(): boolean {
    if (this.#saved < 1) return false
    this.#saved--
    return true
  }
}

/** A worker that the next try is not for; nor for any other rank of a server that cannot be reached. */
export function noteFailed(failed: Set<string>, { id, url, dpRank }: WorkerSpec, cause: string): void {
  failed.add(id)
  if (dpRank !== undefined && cause === 'connect') failed.add(url)
}

/** After so many tries of a leg: whether there is leave for another, and a worker that has not failed. If so it has been waited for. */
export async function mayTryAgain(
  { settings, placement, metrics }: RequestContext,
  exchange: Exchange,
  { leg, tries, cause, failed }: { leg: Role; tries: number; cause: string; failed: ReadonlySet<string> },
): Promise<boolean> {
  if (tries > settings.retries.max || !(await placement.mayRetry(leg, failed))) return false
  metrics.retries.inc({ leg, cause })
  exchange.facts.retries++
  await exchange.pause(backoffMs(settings.retries.backoffMs, tries, Math.random))
  return true
}

/** Doubles with each try, and is drawn between half and all of it, so that what failed together does not come back together. */
export function backoffMs(baseMs: number, tries: number, random: () => number): number {
  return Math.min(2_000, baseMs * 2 ** (tries - 1)) * (0.5 + random() / 2)
}
