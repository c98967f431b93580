import type { GatewayContext } from './context.ts'
import type { Handoff } from './engine/engine.ts'
import type { Generation } from './generate.ts'
import { UpstreamFailure } from './upstream/upstreams.ts'
import { legHeaders } from './worker-headers.ts'

/** After this long the decode worker has taken the request up, and its abort frees the blocks. */
const LONG_ENOUGH_MS = 250

/**
 * The client left between the legs, and prefill keeps the prompt's KV blocks for a decode worker that will not come. A decode request that
 * is aborted as soon as it has been taken up lets the engine give them back now, instead of when the lease ends. A token is proof of that,
 * the head of a stream is not: vLLM sends it before its engine has the request. Whatever goes wrong, the lease ends.
 */
export async function releaseHandoff(
  ctx: GatewayContext,
  { exchange, request, requestId, path }: Generation,
  handoff: Handoff,
): Promise<void> {
  const { registry, upstreams, metrics } = ctx
  const nowMs = performance.now()
  const body = ctx.engine.decodeBody(request, handoff)
  const headers = legHeaders(ctx.settings, exchange, requestId)
  const [least] = registry.candidates('decode', nowMs).toSorted((a, b) => a.inflight - b.inflight)
  const dispatch = least && registry.dispatch('decode', least.worker, 0, nowMs)
  if (dispatch === undefined) return
  metrics.handoffsReleased.inc()
  await new Promise<void>(resolve => {
    const enough = () => call.abort(new UpstreamFailure('aborted', 'the client left'))
    const timer = setTimeout(enough, LONG_ENOUGH_MS)
    const done = () => {
      clearTimeout(timer)
      resolve()
    }
    const to = { onStart: () => {}, onData: enough, onEnd: done, onFailure: done }
    const call = upstreams.open(dispatch.worker.url, { method: 'POST', path, headers, body }, to)
  })
  dispatch.ignored()
}
