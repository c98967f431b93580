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
  const body = ctx.engine.releaseBody(generation.request, handoff)
  if (body === undefined) return
  if (bound !== undefined) {
    const failure = await decodeOneToken(ctx, generation, bound, body)
    if (failure?.kind !== 'connect') generation.events.handoffUnused('released')
    return
  }
  const tried = new Set(excluded)
  for (;;) {
    const placement = await ctx.placement.toRelease(tried)
    if (placement === undefined) return
    const failure = await decodeOneToken(ctx, generation, placement.worker, body)
    const wasSeen = failure?.kind !== 'connect'
    if (failure !== undefined) exclude(tried, placement.worker, failure.kind)
    if (wasSeen) generation.events.handoffUnused('released')
    placement.end('ignored')
    if (wasSeen) return
  }
}

/** @returns what went wrong, if anything. */
function decodeOneToken(
  ctx: FlowContext,
  { exchange, events, requestId, path }: Generation,
  worker: WorkerSpec,
  body: Buffer,
): Promise<UpstreamFailure | undefined> {
  const headers = workerHeaders(ctx, exchange, requestId, worker, events.trace)
  return new Promise(resolve => {
    const timer = setTimeout(
      () => call.abort(new UpstreamFailure('aborted', 'the client left')),
      LONG_ENOUGH_MS,
    )
    const finish = (failure?: UpstreamFailure) => {
      clearTimeout(timer)
      resolve(failure)
    }
    const to = { onStart: () => {}, onData: () => {}, onEnd: () => finish(), onFailure: finish }
    const call = ctx.upstreams.open(worker.url, { method: 'POST', path, headers, body }, to)
  })
}
