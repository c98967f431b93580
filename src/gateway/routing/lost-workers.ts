/**
 * Requests that wait for a worker which fails its health checks. Those that have received nothing yet fail
 * and are retried elsewhere: a non-streamed response may take half an hour, which is too long to wait for a
 * worker that hangs.
 */
import type { Registry } from '../../cluster/registry.ts'
import type { RetryBudget } from './retry-budget.ts'
import { type StopSignal, UpstreamFailure } from '../upstream/upstreams.ts'

/** For a request that cannot be retried. */
export const NEVER: StopSignal = { onStop: () => () => {} }

export class LostWorkers {
  readonly #waiting = new Map<string, Set<(reason: UpstreamFailure) => void>>()
  /** Requests failed in this turn of the event loop. */
  #lostNow = 0

  /**
   * Fails no more requests than the budget can retry; the others keep waiting, since the worker may only be
   * slow.
   */
  constructor(
    registry?: Pick<Registry, 'subscribe' | 'hasCandidates'>,
    budget: Pick<RetryBudget, 'left'> = { left: 0 },
  ) {
    registry?.subscribe(({ kind, worker: { id, role } }) => {
      if (kind === 'unhealthy' && registry.hasCandidates(role, performance.now()))
        this.#loseWithin(id, budget.left)
    })
  }

  /** A signal that stops a request when this worker is lost. */
  of(id: string): StopSignal {
    return {
      onStop: listener => {
        let waiting = this.#waiting.get(id)
        if (waiting === undefined) this.#waiting.set(id, (waiting = new Set()))
        waiting.add(listener)
        return () => {
          if (waiting.delete(listener) && waiting.size === 0) this.#waiting.delete(id)
        }
      },
    }
  }

  /**
   * All ranks of a server are lost at once, before any request has taken its retry: they share what is left.
   */
  #loseWithin(id: string, left: number): void {
    if (this.#lostNow === 0) setImmediate(() => (this.#lostNow = 0))
    const limit = Math.max(0, left - this.#lostNow)
    this.#lostNow += Math.min(limit, this.#waiting.get(id)?.size ?? 0)
    this.lose(id, limit)
  }

  /** Fails at most `limit` of the requests that wait for this worker. */
  lose(id: string, limit: number): void {
    for (const listener of [...(this.#waiting.get(id) ?? [])].slice(0, limit)) {
      listener(new UpstreamFailure('timeout', 'the worker fails its health check'))
    }
  }
}
