/** The first leg: a prefill worker reads the prompt and says where its KV cache is. Tried again elsewhere when a worker fails. */
import { type RefusalCode, Refusal } from '../http/refusal.ts'
import type { RequestContext } from './context.ts'
import type { Handoff } from '../engines/engine.ts'
import { shownWhy } from '../observe/insight/story.ts'
import type { Generation } from './generate.ts'
import { giveBack } from './release-handoff.ts'
import { NEVER } from '../routing/lost-workers.ts'
import { prefixKeyOf } from './prefix-key.ts'
import type { ClientRequest } from '../http/client-request.ts'
import { mayTryAgain, noteFailed } from '../routing/retry-budget.ts'
import { legStopped } from '../observe/tracing/leg-spans.ts'
import { type ReplyHeaders, type UpstreamAnswer, UpstreamFailure } from '../upstream/upstreams.ts'
import { legHeaders, ranked, traced } from './worker-headers.ts'
import { isWrongRank, wrongRankWords } from '../engines/wrong-rank.ts'

/** Handed off, refused by the worker as the client's fault, or stopped because the client left. */
export type PrefillEnd =
  | {
      readonly kind: 'handed_off'
      readonly handoff: Handoff
      readonly worker: string
      /** When the head of its answer came: the lease of the blocks runs since then at the latest. */
      readonly leasedMs: number
      readonly answeredMs: number
    }
  | {
      readonly kind: 'refused'
      readonly status: number
      readonly headers: ReplyHeaders
      readonly body: Buffer
    }
  | { readonly kind: 'stopped' }

/** Token ids come back for a chat whose prompt is long. */
const MOST_ANSWER_BYTES = 64 << 20

export async function runPrefill(ctx: RequestContext, generation: Generation): Promise<PrefillEnd> {
  const { settings, placement, upstreams, engine, metrics } = ctx
  const { exchange, request, requestId, path } = generation
  const headers = legHeaders(settings, exchange, requestId)
  const body = engine.prefillBody(request)
  const prefixKey = prefixKeyOf(request, settings.routing.prefixTokens)
  const failed = new Set<string>()
  let refusal: Refusal | undefined
  for (let tries = 1; ; tries++) {
    const dispatch = await placement.toPrefill(prefixKey, request.promptTokens, failed)
    if (dispatch === undefined)
      throw refusal ?? new Refusal('ELDR_NO_PREFILL_WORKER', { retryAfterSeconds: 1 })
    const { id, url } = dispatch.worker
    const startMs = performance.now()
    const leg = exchange.story?.leg('prefill', id, tries, requestId)
    const span = exchange.trace?.leg(
      'prefill',
      dispatch.worker,
      tries,
      requestId === exchange.id ? undefined : requestId,
    )
    const limits = {
      timeoutMs: settings.timeouts.prefillMs,
      maxBytes: MOST_ANSWER_BYTES,
      // The blocks were parked while the gateway was giving up on this worker.
      onLate(late: UpstreamAnswer) {
        const read = judge(ctx, late, request, dispatch.worker.dpRank)
        if (read.kind === 'handed_off') giveBack(ctx, generation, read.handoff, new Set())
      },
    }
    const answer = await upstreams
      .ask(
        url,
        { method: 'POST', path, headers: ranked(traced(headers, exchange, span), dispatch.worker), body },
        limits,
        exchange,
        tries > settings.retries.max ? NEVER : ctx.lost.of(id),
      )
      .catch(asFailure)
    const answeredMs = performance.now()
    if (exchange.stopped !== undefined && answer instanceof UpstreamFailure) {
      dispatch.ignored()
      leg?.ended('stopped')
      if (span !== undefined) legStopped(span, exchange.stopped, answeredMs)
      return { kind: 'stopped' }
    }
    const judged = judge(ctx, answer, request, dispatch.worker.dpRank)
    leg?.ended(
      judged.kind,
      undefined,
      judged.kind === 'failed' ? shownWhy(judged.cause, judged.why) : undefined,
    )
    if (span !== undefined) {
      if (judged.kind === 'failed') span.failed(judged.cause, judged.why)
      if (judged.kind === 'handed_off') span.set({ 'eldr.prompt_tokens': judged.handoff.promptTokens })
      span
        .set({ 'http.response.status_code': 'status' in answer ? answer.status : undefined })
        .end(answeredMs)
    }
    if (ctx.log.isLevelEnabled('debug'))
      ctx.log.debug(
        {
          reqId: requestId,
          leg: 'prefill',
          worker: id,
          attempt: tries,
          end: judged.kind,
          ms: answeredMs - startMs,
        },
        'leg',
      )
    if (judged.kind === 'refused') {
      dispatch.ignored()
      return judged
    }
    if (judged.kind === 'handed_off') {
      dispatch.succeeded(answeredMs)
      exchange.facts.prefilled(id, answeredMs - startMs, judged.handoff.promptTokens)
      metrics.prefillSeconds.observe((answeredMs - startMs) / 1000)
      ctx.insight.pace.onWorker(id, answeredMs - startMs)
      if (judged.handoff.engineId !== undefined) ctx.restarts.sawEngineId(id, judged.handoff.engineId)
      return { ...judged, worker: id, answeredMs }
    }
    // A worker that has no room is not one that fails.
    if (judged.code === 'ELDR_OVERLOADED') dispatch.ignored()
    else dispatch.failed(answeredMs)
    const { cause, why } = judged
    refusal =
      judged.code === 'ELDR_OVERLOADED' ? workersFull() : new Refusal(judged.code, { retryAfterSeconds: 1 })
    noteFailed(failed, dispatch.worker, cause)
    metrics.legFailures.inc({ worker: id, leg: 'prefill', kind: cause })
    if (cause === 'connect' || cause === 'reset' || cause === 'timeout') ctx.health.passiveFailure(id)
    ctx.rateLimitedLog.say(`prefill ${id} ${cause}`, answeredMs, times =>
      ctx.log.warn({ worker: id, why, times, reqId: exchange.id }, 'prefill failed'),
    )
    if (!(await mayTryAgain(ctx, exchange, { leg: 'prefill', tries, cause, failed }))) throw refusal
    if (exchange.stopped !== undefined) return { kind: 'stopped' }
  }
}

export function workersFull(): Refusal {
  return new Refusal('ELDR_OVERLOADED', {
    words: 'The workers are full; try again later.',
    retryAfterSeconds: 1,
  })
}

type Judged =
  | { readonly kind: 'handed_off'; readonly handoff: Handoff; readonly leasedMs: number }
  | Extract<PrefillEnd, { kind: 'refused' }>
  | { readonly kind: 'failed'; readonly cause: string; readonly why: string; readonly code: RefusalCode }

function judge(
  { engine }: RequestContext,
  answer: UpstreamAnswer | UpstreamFailure,
  request: ClientRequest,
  dpRank: number | undefined,
): Judged {
  if (answer instanceof UpstreamFailure) {
    const code = answer.kind === 'timeout' ? 'ELDR_PREFILL_TIMEOUT' : 'ELDR_PREFILL_FAILED'
    return { kind: 'failed', cause: answer.kind, why: answer.message, code }
  }
  const { status, headers, body, startedMs } = answer
  if (isWrongRank(dpRank, status, body))
    return { kind: 'failed', cause: 'status', why: wrongRankWords(dpRank), code: 'ELDR_PREFILL_FAILED' }
  if (status >= 400 && status < 500 && status !== 429) return { kind: 'refused', status, headers, body }
  if (status !== 200) {
    return {
      kind: 'failed',
      cause: 'status',
      why: `status ${status}`,
      code: status === 429 ? 'ELDR_OVERLOADED' : 'ELDR_PREFILL_FAILED',
    }
  }
  const handoff = engine.readHandoff(body, request)
  if (typeof handoff === 'string')
    return { kind: 'failed', cause: 'handoff', why: handoff, code: 'ELDR_HANDOFF_BAD' }
  return { kind: 'handed_off', handoff, leasedMs: startedMs }
}

function asFailure(error: unknown): UpstreamFailure {
  if (error instanceof UpstreamFailure) return error
  throw error
}
