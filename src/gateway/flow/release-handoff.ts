import type { WorkerSpec } from '../../cluster/worker.ts'
import type { RequestContext } from './context.ts'
import type { Handoff } from '../engines/engine.ts'
import type { Generation } from './generate.ts'
import { noteFailed } from '../routing/retry-budget.ts'
import { UpstreamFailure } from '../upstream/upstreams.ts'
import { legHeaders, ranked, traced } from './worker-headers.ts'

/** After this long a decode worker that is alive has taken the request up, be it to its queue, and its abort frees the blocks. */
const LONG_ENOUGH_MS = 1_000

/**
 * The client left between the legs, and prefill keeps the prompt's KV blocks for a decode worker that will not come. A decode request of
 * one token lets the engine give them back now, instead of when the lease ends. It is not called off at once: vLLM frees nothing for a
 * request that ends before its engine has it. A worker that cannot be reached, perhaps the one that the client was waiting for, has not
 * heard of the hand-off: then the next one frees it. Whatever else goes wrong, the lease ends.
 */
export async function releaseHandoff(
  ctx: RequestContext,
  generation: Generation,
  handoff: Handoff,
  failed: ReadonlySet<string>,
): Promise<void> {
  const tried = new Set(failed)
  for (;;) {
    const dispatch = await ctx.placement.toRelease(tried)
    if (dispatch === undefined) return
    const failure = await decodeOneToken(ctx, generation, handoff, dispatch.worker)
    const wasHeard = failure?.kind !== 'connect'
    if (failure !== undefined) noteFailed(tried, dispatch.worker, failure.kind)
    if (wasHeard) ctx.metrics.handoffsReleased.inc()
    dispatch.ignored()
    if (wasHeard) return
  }
}

/** What went wrong, if something did. */
function decodeOneToken(
  { settings, upstreams, engine }: RequestContext,
  { exchange, request, requestId, path }: Generation,
  handoff: Handoff,
  worker: WorkerSpec,
): Promise<UpstreamFailure | undefined> {
  const headers = ranked(traced(legHeaders(settings, exchange, requestId), exchange), worker)
  return new Promise(resolve => {
    const timer = setTimeout(
      () => call.abort(new UpstreamFailure('aborted', 'the client left')),
      LONG_ENOUGH_MS,
    )
    const done = (failure?: UpstreamFailure) => {
      clearTimeout(timer)
      resolve(failure)
    }
    const to = { onStart: () => {}, onData: () => {}, onEnd: () => done(), onFailure: done }
    const call = upstreams.open(
      worker.url,
      { method: 'POST', path, headers, body: engine.releaseBody(request, handoff) },
      to,
    )
  })
}
