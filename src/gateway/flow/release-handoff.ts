/** Frees hand-offs that no decode request will use. */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { Handoff } from '../engines/engine.ts'
import { UpstreamFailure } from '../upstream/upstreams.ts'
import { exclude } from './attempt.ts'
import type { FlowContext } from './context.ts'
import type { Generation } from './generate.ts'
import { workerHeaders } from './worker-headers.ts'

/**
 * After this time a live decode worker has accepted the request, if only into its queue, and aborting it
 * frees the blocks.
 */
const LONG_ENOUGH_MS = 1_000

/**
 * The prefill worker keeps the prompt's KV blocks for a decode request that will not come: the client left, or the decode worker refused.
 * A decode request of one token frees them now instead of at the end of the lease. It is not aborted at once, because vLLM frees nothing
 * for a request that ends before its engine has it. A worker that cannot be reached has not seen the hand-off, so the next one frees it.
 * `bound`: the only worker that can, where the engine wants it chosen before prefill. If all else fails, the lease ends. Releasing a
 * hand-off twice is harmless. Runs in the background.
 */
export function releaseHandoff(
  ctx: FlowContext,
  generation: Generation,
  handoff: Handoff,
  excluded: ReadonlySet<string>,
  bound?: WorkerSpec,
): void {
  release(ctx, generation, handoff, excluded, bound).catch((err: unknown) =>
    ctx.log.error({ err }, 'hand-off not released'),
  )
}

async function release(
  ctx: FlowContext,
  generation: Generation,
  handoff: Handoff,
  excluded: ReadonlySet<string>,
  bound: WorkerSpec | undefined,
): Promise<void> {
  const tried = new Set(excluded)
  for (;;) {
    const placement = bound === undefined ? await ctx.placement.toRelease(tried) : undefined
    const worker = bound ?? placement?.worker
    const body = worker && ctx.engine.releaseBody(generation.request, handoff, worker)
    if (worker === undefined || body === undefined) return placement?.end('ignored')
    const outcome = await decodeOneToken(ctx, generation, worker, body)
    placement?.end('ignored')
    if (outcome === 'released') generation.events.handoffUnused('released')
    if (outcome !== 'not_seen' || bound !== undefined) return undefined
    exclude(tried, worker, 'connect')
  }
}

/**
 * `refused`: the worker has seen it and freed nothing; another would do the same. `not_seen`: it cannot be
 * reached.
 */
type ReleaseOutcome = 'released' | 'refused' | 'not_seen'

function decodeOneToken(
  ctx: FlowContext,
  { exchange, events, requestId, path }: Generation,
  worker: WorkerSpec,
  body: Buffer,
): Promise<ReleaseOutcome> {
  const headers = workerHeaders(ctx, exchange, requestId, worker, events.trace)
  return new Promise(resolve => {
    let status = 0
    const timer = setTimeout(
      () => call.abort(new UpstreamFailure('aborted', 'the client left')),
      LONG_ENOUGH_MS,
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
