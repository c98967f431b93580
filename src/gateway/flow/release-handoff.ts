/** Frees hand-offs that no decode request will use. */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { ReleaseRequest } from '../engines/engine.ts'
import { UpstreamFailure } from '../upstream/upstreams.ts'
import { exclude } from './attempt.ts'
import type { FlowContext } from './context.ts'
import type { Generation } from './generate.ts'
import type { HandedOff } from './prefill.ts'
import { workerHeaders } from './worker-headers.ts'

/**
 * The prefill worker keeps the prompt's KV blocks for a decode request that will not come: the client left,
 * or the decode worker refused. The engine says which request frees them now instead of at the end of the
 * lease. A worker that cannot be reached has not seen the hand-off, so the next one frees it. `bound`: the
 * only worker that can, where the engine wants it chosen before prefill. If all else fails, the lease ends.
 * Runs in the background.
 */
export function releaseHandoff(
  ctx: FlowContext,
  generation: Generation,
  unused: HandedOff,
  excluded: ReadonlySet<string>,
  bound?: WorkerSpec,
): void {
  release(ctx, generation, unused, excluded, bound).catch((err: unknown) =>
    ctx.log.error({ err }, 'hand-off not released'),
  )
}

async function release(
  ctx: FlowContext,
  generation: Generation,
  { handoff, worker: prefill }: HandedOff,
  excluded: ReadonlySet<string>,
  bound: WorkerSpec | undefined,
): Promise<void> {
  const { request, path, events } = generation
  const tried = new Set(excluded)
  for (;;) {
    const placement = bound === undefined ? await ctx.placement.toRelease(tried) : undefined
    const decode = bound ?? placement?.worker
    let asked: ReleaseRequest | undefined
    let outcome: ReleaseOutcome | undefined
    try {
      asked = ctx.engine.releaseRequest({ request, path, handoff, prefill, decode })
      outcome = asked && (await send(ctx, generation, asked))
    } finally {
      placement?.end('ignored')
    }
    if (outcome === 'released') events.handoffUnused('released')
    // Only another decode worker could do better.
    if (outcome !== 'not_seen' || asked?.worker !== placement?.worker) return
    exclude(tried, asked!.worker, 'connect')
  }
}

/**
 * `refused`: the worker has seen it and freed nothing; another would do the same. `not_seen`: it cannot be
 * reached.
 */
type ReleaseOutcome = 'released' | 'refused' | 'not_seen'

function send(
  ctx: FlowContext,
  { exchange, events, requestId }: Generation,
  { worker, path, body, abortAfterMs }: ReleaseRequest,
): Promise<ReleaseOutcome> {
  const headers = workerHeaders(ctx, exchange, requestId, worker, events.trace)
  return new Promise(resolve => {
    let status = 0
    const timer = setTimeout(
      () => call.abort(new UpstreamFailure('aborted', 'the client left')),
      abortAfterMs,
    )
    const finish = (outcome: ReleaseOutcome) => {
      clearTimeout(timer)
      resolve(outcome)
    }
    const call = ctx.upstreams.open(
      worker.url,
      { method: 'POST', path, headers, body },
      {
        onStart: code => void (status = code),
        onData: () => {},
        onEnd: () => finish(status === 200 ? 'released' : 'refused'),
        onFailure: ({ kind }) =>
          finish(kind === 'connect' ? 'not_seen' : kind === 'aborted' ? 'released' : 'refused'),
      },
    )
  })
}
