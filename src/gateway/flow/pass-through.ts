/** Routes that the gateway does not take part in: one worker answers, and the answer is passed on as it is. */
import { Refusal } from '../http/refusal.ts'
import type { Settings } from '../config/settings.ts'
import type { RequestContext } from './context.ts'
import type { Exchange } from '../http/exchange.ts'
import { scanObject } from '../json/scan.ts'
import type { LegLimits } from './leg-plan.ts'
import { NEVER } from '../routing/lost-workers.ts'
import type { Outcome } from '../observe/metrics/metrics.ts'
import { relay, type RelayEnd } from './relay.ts'
import { last, withoutHandoff } from '../http/client-request.ts'
import { mayTryAgain, noteFailed } from '../routing/retry-budget.ts'
import { clientSink, type Sink } from './sink.ts'
import { legEnded } from '../observe/tracing/leg-spans.ts'
import type { UpstreamRequest } from '../upstream/upstreams.ts'
import { legHeaders, ranked, traced } from './worker-headers.ts'

/** On a decode worker: any of them has the model and the tokenizer. */
export async function passThrough(
  ctx: RequestContext,
  exchange: Exchange,
  path: string,
  body: Buffer,
): Promise<Outcome> {
  const { settings, placement } = ctx
  exchange.clientStallMs = settings.server.clientStallMs
  const headers = legHeaders(settings, exchange, exchange.id)
  const request: UpstreamRequest =
    exchange.request.method === 'POST'
      ? { method: 'POST', path, headers, body: withoutHandoff(body).body }
      : { method: 'GET', path, headers }
  const limits = limitsOf(settings, request)
  const sink = clientSink(exchange)
  const failed = new Set<string>()
  // A worker that has taken a POST may have begun with it.
  const harmless = request.method === 'GET'
  for (let tries = 1; ; tries++) {
    if (exchange.stopped !== undefined) return stopped(exchange, sink, false)
    const place = await placement.toDecode(exchange.id, undefined, 0, failed)
    if (place === undefined) throw new Refusal('ELDR_NO_DECODE_WORKER', { retryAfterSeconds: 1 })
    const { worker } = place.dispatch
    const { id, url } = worker
    exchange.facts.served('decode', id)
    const span = exchange.trace?.leg('relay', worker, tries, undefined, request.method)
    const end = await relay(
      ctx.upstreams,
      url,
      { ...request, headers: ranked(traced(headers, exchange, span), worker) },
      sink,
      {
        stop: exchange,
        lost: harmless && tries <= settings.retries.max ? ctx.lost.of(id) : NEVER,
        limits,
      },
    ).finally(() => {
      place.dispatch.ignored() // what these routes answer says little of how well the worker generates
      place.left()
    })
    if (span !== undefined)
      legEnded(span, end.kind === 'served' ? end : { ...end, sent: true }, exchange.stopped, undefined)
    if (end.kind === 'served') return end.status < 400 ? 'ok' : 'worker_refused'
    if (end.kind === 'stopped') return stopped(exchange, sink, end.begun)
    if (end.failure.kind === 'connect') ctx.health.passiveFailure(id)
    if (end.begun) return broken(sink, end)
    noteFailed(failed, worker, end.failure.kind)
    const again = { leg: 'decode', tries, cause: end.failure.kind, failed } as const
    if ((harmless || end.failure.kind === 'connect') && (await mayTryAgain(ctx, exchange, again))) continue
    const code =
      end.status === 429
        ? 'ELDR_OVERLOADED'
        : end.failure.kind === 'timeout'
          ? 'ELDR_DECODE_TIMEOUT'
          : 'ELDR_DECODE_FAILED'
    throw new Refusal(code, { retryAfterSeconds: 1 })
  }
}

/** A worker that generates without a stream says nothing before it is done; one that does not generate is soon done. */
function limitsOf({ timeouts }: Settings, { path, body }: UpstreamRequest): LegLimits {
  const { prefillMs, firstTokenMs, betweenTokensMs, requestMs } = timeouts
  const stream = body && last(scanObject(body) ?? [], 'stream')
  const streams = stream !== undefined && body!.toString('latin1', stream.valueStart, stream.end) === 'true'
  const firstByteMs =
    body === undefined || !path.startsWith('/v1/')
      ? firstTokenMs
      : streams
        ? Math.min(requestMs, prefillMs + firstTokenMs)
        : requestMs
  return { firstByteMs, betweenTokensMs }
}

function broken(sink: Sink, { failure }: Extract<RelayEnd, { kind: 'failed' }>): Outcome {
  sink.broken(new Refusal(failure.kind === 'timeout' ? 'ELDR_STREAM_STALLED' : 'ELDR_STREAM_BROKEN'))
  return 'broken'
}

function stopped({ stopped: reason, refusal }: Exchange, sink: Sink, begun: boolean): Outcome {
  if (refusal === undefined) return reason === 'client_stalled' ? 'client_stalled' : 'client_gone'
  if (!begun) throw refusal
  sink.broken(refusal)
  return 'timeout'
}
