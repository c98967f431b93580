/**
 * Requests that wait for a worker which turns out not to answer its health checks. Those that have had nothing of it yet fail, and are
 * tried elsewhere: an answer that is not streamed may take half an hour, and nobody would wait that long for a worker that hangs.
 */
import type { Registry } from '../cluster/registry.ts'
import { type StopSignal, UpstreamFailure } from './upstream/upstreams.ts'

export class LostWorkers {
  readonly #waiting = new Map<string, Set<(reason: UpstreamFailure) => void>>()

  constructor(registry: Pick<Registry, 'subscribe'>) {
    registry.subscribe(({ kind, worker: { id } }) => {
      if (kind === 'unhealthy') this.#lose(id)
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

  #lose(id: string): void {
    const waiting = this.#waiting.get(id)
    this.#waiting.delete(id)
    for (const listener of waiting ?? []) listener(new UpstreamFailure('timeout', 'the worker does not answer its health check'))
  }
}
