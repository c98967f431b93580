/**
 * One prompt, one choice: prefill, decision, decode. Until the first byte of decode has come nothing was sent to the client, and a
 * failure is met by doing all of it again without the worker that failed: its hand-off may have been read, and the prefix cache makes a
 * second prefill cheap. After the first byte nothing is tried again.
 */
import type { Dispatch } from '../../cluster/registry.ts'
import type { Role } from '../../cluster/worker.ts'
import { Refusal } from '../http/refusal.ts'
import type { RequestContext } from './context.ts'
import type { Handoff } from '../engines/engine.ts'
import { shownWhy } from '../observe/insight/story.ts'
import type { Exchange } from '../http/exchange.ts'
import { noWorker, outcomeOf, refusalOf, stopped } from './generation-end.ts'
import { runLeg } from './leg.ts'
import type { LegEnd, LegLimits } from './leg-plan.ts'
import { NEVER } from '../routing/lost-workers.ts'
import type { Outcome } from '../observe/metrics/metrics.ts'
import { type PrefillEnd, runPrefill } from './prefill-leg.ts'
import { prefixKeyOf } from './prefix-key.ts'
import { giveBack } from './release-handoff.ts'
import type { ClientRequest } from '../http/client-request.ts'
import { mayTryAgain, noteFailed } from '../routing/retry-budget.ts'
import type { DecodePlacement } from '../routing/router.ts'
import type { Sink } from './sink.ts'
import { legEnded, partOf, routed } from '../observe/tracing/leg-spans.ts'
import { legHeaders, ranked, traced } from './worker-headers.ts'

export interface Generation {
  readonly exchange: Exchange
  readonly request: ClientRequest
  /** On both legs; of a part of a split request its own. */
  readonly requestId: string
  readonly path: string
  readonly sink: Sink
}

type HandedOff = Extract<PrefillEnd, { kind: 'handed_off' }>

/** Rejects with a Refusal when the client has seen nothing yet and is to be told why. */
export async function generate(ctx: RequestContext, generation: Generation): Promise<Outcome> {
  const { exchange, request } = generation
  exchange.clientStallMs = ctx.settings.server.clientStallMs
  ctx.placement.requestCame()
  // One token is prefill's own; what must not be handed over is done by one decode worker alone.
  if (request.whole) return direct(ctx, generation, 'decode')
  if (request.maxTokens === 1) return direct(ctx, generation, 'prefill')
  return twoLegs(ctx, generation)
}

async function twoLegs(ctx: RequestContext, generation: Generation): Promise<Outcome> {
  const { exchange, request } = generation
  const failed = new Set<string>()
  /** A hand-off that no worker has heard of: the next one can have it. */
  let unused: HandedOff | undefined
  for (let tries = 1; ; tries++) {
    if (exchange.stopped !== undefined)
      return unused === undefined ? stopped(exchange) : letGo(ctx, generation, unused.handoff, failed)
    // Nobody is there to take the prompt over: then it need not be read.
    if (!(await ctx.placement.any('decode', failed))) throw noWorker('decode')
    const prefill = unused ?? (await runPrefill(ctx, generation))
    unused = undefined
    if (prefill.kind === 'stopped') return stopped(exchange)
    if (prefill.kind === 'refused') {
      generation.sink.whole(prefill.status, prefill.headers, prefill.body)
      return 'worker_refused'
    }
    // Once, however often it has to be read.
    if (tries === 1)
      ctx.metrics.tokens.inc('prompt', '', prefill.handoff.promptTokens ?? request.promptTokens)
    if (exchange.stopped !== undefined) return letGo(ctx, generation, prefill.handoff, failed)
    if (isTooOld(ctx, prefill.leasedMs)) {
      const again = { leg: 'prefill', tries, cause: 'lease', failed: new Set<string>() } as const
      if (!(await mayTryAgain(ctx, exchange, again)))
        throw new Refusal('ELDR_HANDOFF_BAD', { retryAfterSeconds: 1 })
      continue
    }
    ctx.noteWorker(exchange, 'prefill', prefill.worker)
    const end = await decode(ctx, generation, prefill, failed, tries)
    if (end.kind === 'stopped' && !end.sent) return letGo(ctx, generation, prefill.handoff, failed)
    // vLLM does not free the blocks of a request that it refuses before its engine has it.
    if (end.kind === 'served' && end.status !== 200) giveBack(ctx, generation, prefill.handoff, failed)
    if (end.kind !== 'failed' || end.begun) return outcomeOf(exchange, end)
    const again = { leg: 'decode', tries, cause: end.failure.kind, failed } as const
    if (!(await mayTryAgain(ctx, exchange, again))) {
      if (!end.sent) giveBack(ctx, generation, prefill.handoff, failed)
      throw refusalOf('decode', end)
    }
    if (!end.sent) unused = prefill
  }
}

async function decode(
  ctx: RequestContext,
  generation: Generation,
  { handoff, answeredMs }: HandedOff,
  failed: Set<string>,
  tries: number,
): Promise<LegEnd> {
  const { exchange, request } = generation
  const body = ctx.engine.decodeBody(request, handoff)
  const place = await decide(ctx, generation, handoff, handoff.promptTokens ?? request.promptTokens, failed)
  if (place === undefined) throw noWorker('decode')
  const { dispatch, decision, left } = place
  const { id } = dispatch.worker
  ctx.noteWorker(exchange, 'decode', id, decision.reason)
  ctx.metrics.handoffSeconds.observe((performance.now() - answeredMs) / 1000)
  ctx.insight.decided(exchange, place)
  const end = await send(
    ctx,
    generation,
    dispatch,
    body,
    limitsOf(ctx, request),
    tries,
    place.policy,
  ).finally(left)
  // vLLM answers 500 also when the prefill worker has gone with the blocks: where there is no other the same worker is asked again.
  const alone = async () => !(await ctx.placement.any('decode', new Set([...failed, id])))
  if (end.kind === 'failed' && !(end.status === 500 && (await alone())))
    noteFailed(failed, dispatch.worker, end.failure.kind)
  return end
}

/** The decode worker, as the log and the trace of the request have it. */
async function decide(
  ctx: RequestContext,
  { exchange, requestId }: Generation,
  handoff: Handoff | undefined,
  tokens: number,
  failed: ReadonlySet<string>,
): Promise<DecodePlacement | undefined> {
  const fromMs = performance.now()
  const place = await ctx.placement.toDecode(requestId, handoff, tokens, failed)
  if (place !== undefined) exchange.facts.decided(place, performance.now() - fromMs)
  if (exchange.trace !== undefined) routed(exchange.trace, place, fromMs, partOf(exchange, requestId))
  return place
}

/** By one worker alone, without a hand-off. */
async function direct(ctx: RequestContext, generation: Generation, role: Role): Promise<Outcome> {
  const { exchange, request } = generation
  const { prefillMs } = ctx.settings.timeouts
  const limits = limitsOf(ctx, request, prefillMs)
  const failed = new Set<string>()
  for (let tries = 1; ; tries++) {
    if (exchange.stopped !== undefined) return stopped(exchange)
    const place =
      role === 'decode' ? await decide(ctx, generation, undefined, request.promptTokens, failed) : undefined
    const key = () => prefixKeyOf(request, ctx.settings.routing.prefixTokens)
    const dispatch =
      role === 'decode' ? place?.dispatch : await ctx.placement.toPrefill(key(), request.promptTokens, failed)
    if (dispatch === undefined) throw noWorker(role)
    ctx.noteWorker(exchange, role, dispatch.worker.id)
    if (place !== undefined) ctx.insight.decided(exchange, place)
    if (tries === 1) ctx.metrics.tokens.inc('prompt', '', request.promptTokens)
    const end = await send(ctx, generation, dispatch, request.body, limits, tries, place?.policy).finally(
      () => place?.left(),
    )
    if (end.kind !== 'failed' || end.begun) return outcomeOf(exchange, end)
    noteFailed(failed, dispatch.worker, end.failure.kind)
    const again = { leg: role, tries, cause: end.failure.kind, failed }
    if (!(await mayTryAgain(ctx, exchange, again))) throw refusalOf(role, end)
  }
}

/** One try on one worker, its load and its breaker told of the end. `policy`: that placed it there, of a decode worker. */
async function send(
  ctx: RequestContext,
  generation: Generation,
  dispatch: Dispatch,
  body: Buffer,
  limits: LegLimits,
  tries: number,
  policy?: string,
): Promise<LegEnd> {
  const { exchange, request, requestId, path, sink } = generation
  const { id, url, role } = dispatch.worker
  const { pace } = ctx.insight
  const fromMs = performance.now()
  const leg = exchange.story?.leg(role, id, tries, requestId)
  const span = exchange.trace?.leg(role, dispatch.worker, tries, partOf(exchange, requestId))
  exchange.facts.served(role, id)
  let firstMs = 0
  let lastMs = 0
  let tokens = 0
  let whole = 0
  const on = {
    onFirstByte() {
      firstMs = lastMs = performance.now()
      // An answer that is not streamed comes all at once: how long it took says nothing of a first token.
      if (request.stream)
        ctx.metrics.ttftSeconds.of(request.api).observe((firstMs - exchange.startedMs) / 1000)
      leg?.firstByte()
      exchange.facts.firstByte(firstMs)
      // Of an answer that comes whole nobody knows when its first token was made.
      if (request.stream) span?.event('first_token', firstMs)
      if (policy !== undefined && request.stream) pace.firstByte(policy, firstMs - exchange.startedMs)
    },
    onTokens(events: number, nowMs: number) {
      tokens += events
      lastMs = nowMs
    },
    onWhole(count: number) {
      ctx.metrics.tokens.inc('output', '', count)
      whole = count
    },
  }
  const headers = ranked(
    traced(legHeaders(ctx.settings, exchange, requestId), exchange, span),
    dispatch.worker,
  )
  const plan = {
    stream: request.stream,
    sink,
    stop: exchange,
    lost: tries > ctx.settings.retries.max ? NEVER : ctx.lost.of(id),
    limits,
    dpRank: dispatch.worker.dpRank,
    on,
  }
  const end = await runLeg(ctx.upstreams, url, { method: 'POST', path, headers, body }, plan).catch(
    (error: unknown) => {
      dispatch.ignored()
      leg?.ended('fault')
      throw error
    },
  )
  leg?.ended(
    end.kind,
    tokens || whole,
    end.kind === 'failed' ? shownWhy(end.failure.kind, end.failure.message) : undefined,
  )
  if (span !== undefined) legEnded(span, end, exchange.stopped, tokens || whole)
  const nowMs = performance.now()
  exchange.facts.generated(tokens || whole, lastMs - firstMs)
  if (ctx.log.isLevelEnabled('debug'))
    ctx.log.debug(
      {
        reqId: requestId,
        leg: role,
        worker: id,
        attempt: tries,
        end: end.kind,
        tokens: tokens || whole,
        ms: nowMs - fromMs,
      },
      'leg',
    )
  if (tokens > 1) {
    const tokenMs = (lastMs - firstMs) / (tokens - 1)
    ctx.metrics.interTokenSeconds.observe(tokenMs / 1000)
    if (policy !== undefined) {
      pace.stream(policy, tokenMs)
      pace.onWorker(id, tokenMs)
    }
  }
  if (tokens > 0) ctx.metrics.tokens.inc('output', '', tokens)
  if (end.kind === 'served' && end.status === 200) dispatch.succeeded(nowMs)
  else if (end.kind !== 'failed') dispatch.ignored()
  else {
    const { kind, message: why } = end.failure
    // A worker that has no room is not one that fails.
    if (end.status === 429) dispatch.ignored()
    else dispatch.failed(nowMs)
    ctx.metrics.legFailures.inc({ worker: id, leg: role, kind })
    if (kind === 'connect' || kind === 'reset' || kind === 'timeout') ctx.health.passiveFailure(id)
    ctx.rateLimitedLog.say(`${role} ${id} ${kind}`, nowMs, times =>
      ctx.log.warn({ worker: id, why, times, reqId: exchange.id }, `${role} failed`),
    )
  }
  return end
}

/**
 * Of an answer that is not streamed nothing is seen before its end: it may take as long as a stream of as many tokens. `prefillMs` where
 * the worker has to read the prompt as well.
 */
function limitsOf(
  { settings: { timeouts } }: RequestContext,
  { stream, maxTokens }: ClientRequest,
  prefillMs = 0,
): LegLimits {
  const { firstTokenMs, betweenTokensMs, requestMs } = timeouts
  const restMs = stream ? 0 : Math.max(0, (maxTokens ?? Infinity) - 1) * betweenTokensMs
  return { firstByteMs: Math.min(requestMs, prefillMs + firstTokenMs + restMs), betweenTokensMs }
}

function isTooOld({ settings: { lease }, metrics }: RequestContext, leasedMs: number): boolean {
  const old = performance.now() - leasedMs > lease.durationMs * lease.usableShare
  if (old) metrics.leasesMissed.inc()
  return old
}

/** The prompt was read, and no decode worker has heard of it. */
function letGo(
  ctx: RequestContext,
  generation: Generation,
  handoff: Handoff,
  failed: ReadonlySet<string>,
): Outcome {
  giveBack(ctx, generation, handoff, failed)
  return stopped(generation.exchange)
}
