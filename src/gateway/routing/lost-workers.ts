/**
 * Requests that wait for a worker which turns out not to answer its health checks. Those that have had nothing of it yet fail, and are
 * tried elsewhere: an answer that is not streamed may take half an hour, and nobody would wait that long for a worker that hangs.
 */
import type { Registry } from '../../cluster/registry.ts'
import type { RetryBudget } from './retry-budget.ts'
import { type StopSignal, UpstreamFailure } from '../upstream/upstreams.ts'

/** For a request that could not be tried again. */
export const NEVER: StopSignal = { onStop: () => () => {} }

export class LostWorkers {
  readonly #waiting = new Map<string, Set<(reason: UpstreamFailure) => void>>()
  /** In this turn of the event loop. */
  #lostNow = 0

  /** As many as can be tried again; the others go on waiting, for the worker may only be slow. */
  constructor(
    registry?: Pick<Registry, 'subscribe' | 'hasCandidates'>,
    budget: Pick<RetryBudget, 'left'> = { left: 0 },
  ) {
    registry?.subscribe(({ kind, worker: { id, role } }) => {
      if (kind === 'unhealthy' && registry.hasCandidates(role, performance.now()))
        this.#loseWithin(id, budget.left)
    })
  }

  /** Happens when the worker is lost. */
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

  /** Ranks of one server are lost at once, before any request has taken leave to be tried again: what is left is for all of them. */
  #loseWithin(id: string, left: number): void {
    if (this.#lostNow === 0) setImmediate(() => (this.#lostNow = 0))
    const most = Math.max(0, left - this.#lostNow)
    this.#lostNow += Math.min(most, this.#waiting.get(id)?.size ?? 0)
    this.lose(id, most)
  }

  /** So many of those that wait for it. */
  lose(id: string, most: number): void {
    for (const listener of [...(this.#waiting.get(id) ?? [])].slice(0, most)) {
      listener(new UpstreamFailure('timeout', 'the worker does not answer its health check'))
    }
  }
}
