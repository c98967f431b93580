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
 * Frees KV blocks that a prefill worker holds for a decode request that will not come: the client left, or the decode worker refused. A
 * decode request of one token makes the engine free them now instead of when the lease ends. It is not aborted at once, because vLLM
 * frees nothing for a request that ends before its engine has it. If a worker cannot be reached the next one is tried. If all of them
 * fail, the lease ends by itself. Releasing a hand-off twice is harmless. Runs in the background.
 */
export function giveBack(
  ctx: RequestContext,
  generation: Generation,
  handoff: Handoff,
  failed: ReadonlySet<string>,
): void {
  release(ctx, generation, handoff, failed).catch((err: unknown) =>
    ctx.log.error({ err }, 'hand-off not released'),
  )
}

async function release(
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
