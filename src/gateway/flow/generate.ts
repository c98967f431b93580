/**
 * The flow of a generation: prefill, decision, decode, end. Nothing reaches the client before the first byte
 * of decode, so until then the flow starts again on another worker after a failure, with a new prefill if the
 * hand-off may have been read; the prefix cache makes that cheap. After the first byte nothing is retried,
 * but a stream may be resumed (`resume/`).
 */
import type { Role } from '../../cluster/worker.ts'
import type { Turn } from '../../policy/conversations.ts'
import type { ClientRequest } from '../http/client-request.ts'
import type { Exchange } from '../http/exchange.ts'
import { Refusal } from '../http/refusal.ts'
import type { Outcome, RequestEvents } from '../observe/request-observer.ts'
import type { DecodePlacement } from '../routing/placement.ts'
import { attempts, done, exclude, failed, type Tried } from './attempt.ts'
import type { FlowContext } from './context.ts'
import { noWorker, outcomeOf, refusalOf, stoppedOutcome } from './generation-end.ts'
import { onHolder } from './on-holder.ts'
import { type HandedOff, prefill } from './prefill.ts'
import { prefixKeyOf, turnOf } from './prefix-key.ts'
import { releaseHandoff } from './release-handoff.ts'
import { limitsOf, sendGeneration } from './send.ts'
import { resuming } from './resume/resume.ts'
import type { StreamTracker } from './resume/tracker.ts'
import type { Sink } from './sink.ts'

/** One prompt, one choice. */
export interface Generation {
  readonly exchange: Exchange
  readonly events: RequestEvents
  readonly request: ClientRequest
  /** Sent on both legs. A part of a split request has its own. */
  readonly requestId: string
  readonly path: string
  readonly sink: Sink
  /** Follows the stream, so that it can be resumed. */
  readonly tracker?: StreamTracker
  /** The client's request, if this one goes on with its stream. */
  readonly first?: ClientRequest
}

/** Rejects with a Refusal if the client has seen nothing yet and is to be told why. */
export async function generate(ctx: FlowContext, generation: Generation): Promise<Outcome> {
  const { exchange, request } = generation
  exchange.clientStallMs = ctx.settings.server.clientStallMs
  ctx.placement.requestCame()
  if (request.whole) return onOneWorker(ctx, generation, 'decode')
  // Prefill generates the first token anyway.
  if (request.maxTokens === 1) return onOneWorker(ctx, generation, 'prefill')
  return resuming(ctx, generation, (each, excluded) => onTwoWorkers(ctx, each, excluded))
}

type Excluded = Set<string>

async function onTwoWorkers(ctx: FlowContext, generation: Generation, excluded: Excluded): Promise<Outcome> {
  const { exchange, events, request, sink, first } = generation
  const limits = limitsOf(ctx, request)
  const followsTurns = ctx.settings.conversations.enabled && ctx.engine.keepsKv && first === undefined
  const turn = followsTurns ? turnOf(request) : undefined
  /**
   * A hand-off that no decode worker has used. The next attempt uses it; if there is none, it is released.
   */
  let unused: HandedOff | undefined
  /** The decode worker, if the engine wants it chosen before prefill. */
  let bound: DecodePlacement | undefined
  /** A hand-off that the last decode worker refused, and may still hold. */
  let refused: HandedOff | undefined
  const attempt = async (number: number): Promise<Tried<Outcome>> => {
    // Together with a retry, so that its budget limits these requests too: if all decode workers refuse, they
    // would only add load.
    if (refused !== undefined) releaseHandoff(ctx, generation, refused, excluded, bound?.worker)
    refused = undefined
    if (exchange.stopped !== undefined) return done(stoppedOutcome(exchange))
    const tried = number === 1 && turn && (await onHolder(ctx, generation, turn, excluded))
    if (tried) return tried
    // Without a decode worker there is no point in prefilling.
    if (!(await ctx.placement.any('decode', excluded))) throw noWorker('decode')
    if (ctx.engine.legOrder === 'decode_before_prefill')
      bound = await decide(ctx, generation, undefined, excluded)
    const prefilled = unused ?? (await prefill(ctx, generation, bound?.worker))
    if (prefilled.kind === 'stopped') return done(stoppedOutcome(exchange))
    if (prefilled.kind === 'refused') {
      sink.whole(prefilled.status, prefilled.headers, prefilled.body)
      return done('worker_refused')
    }
    unused = prefilled
    const { handoff } = prefilled
    if (number === 1 && first === undefined)
      events.promptCounted(handoff.promptTokens ?? request.promptTokens)
    if (exchange.stopped !== undefined) return done(stoppedOutcome(exchange))
    if (isExpired(ctx, prefilled)) {
      unused = undefined
      bound?.end('ignored')
      events.handoffUnused('expired')
      const refusal = new Refusal('ELDR_HANDOFF_BAD', { retryAfterSeconds: 1 })
      return failed('prefill', 'lease', new Set(), refusal)
    }
    const placement = bound ?? (await decide(ctx, generation, prefilled, excluded, turn))
    const end = await sendGeneration(ctx, generation, { placement, number, handoff, limits })
    const left = ctx.engine.handoffAfter(end)
    if (left === 'used' || left === 'missed') unused = undefined
    if (end.kind !== 'failed' || end.begun) return done(outcomeOf(exchange, end))
    if (left !== 'missed' || (await hasOther(ctx, placement, excluded)))
      exclude(excluded, placement.worker, end.failure.kind)
    if (left === 'refused') refused = prefilled
    // Not to be used again, or only the worker that failed could use it.
    if (left === 'refused' || bound !== undefined) unused = undefined
    return failed('decode', end.failure.kind, excluded, refusalOf('decode', end))
  }
  try {
    return await attempts(ctx, generation, attempt)
  } finally {
    bound?.end('ignored')
    if (unused !== undefined) releaseHandoff(ctx, generation, unused, excluded, bound?.worker)
  }
}

/** The decode worker. `prefilled`: undefined before or without prefill. */
async function decide(
  ctx: FlowContext,
  { requestId, request, events }: Generation,
  prefilled: HandedOff | undefined,
  excluded: ReadonlySet<string>,
  turn?: Turn,
): Promise<DecodePlacement> {
  const askedMs = performance.now()
  const handoff = prefilled?.handoff
  const tokens = handoff?.promptTokens ?? request.promptTokens
  const placement = await ctx.placement.toDecode(requestId, handoff, tokens, excluded, turn)
  const decidedMs = performance.now()
  events.decided({ requestId, askedMs, decidedMs, prefilledMs: prefilled?.prefilledMs, placement })
  if (placement === undefined) throw noWorker('decode')
  return placement
}

/** Without a hand-off: one worker does both. */
async function onOneWorker(ctx: FlowContext, generation: Generation, role: Role): Promise<Outcome> {
  const { exchange, events, request } = generation
  const { promptTokens } = request
  const limits = limitsOf(ctx, request, ctx.settings.timeouts.prefillMs)
  const excluded = new Set<string>()
  return attempts(ctx, generation, async (number): Promise<Tried<Outcome>> => {
    if (exchange.stopped !== undefined) return done(stoppedOutcome(exchange))
    const key = () => prefixKeyOf(request, ctx.settings.routing.prefixTokens)
    const placement =
      role === 'decode'
        ? await decide(ctx, generation, undefined, excluded)
        : await ctx.placement.toPrefill(key(), promptTokens, excluded)
    if (placement === undefined) throw noWorker(role)
    if (number === 1) events.promptCounted(promptTokens)
    const end = await sendGeneration(ctx, generation, { placement, number, limits })
    if (end.kind !== 'failed' || end.begun) return done(outcomeOf(exchange, end))
    exclude(excluded, placement.worker, end.failure.kind)
    return failed(role, end.failure.kind, excluded, refusalOf(role, end))
  })
}

/** Too close to the end of its lease to be used. */
function isExpired({ settings: { lease } }: FlowContext, { leasedMs }: HandedOff): boolean {
  return performance.now() - leasedMs > lease.durationMs * lease.usableShare
}

/** Whether another decode worker takes requests. */
function hasOther(
  ctx: FlowContext,
  { worker }: DecodePlacement,
  excluded: ReadonlySet<string>,
): Promise<boolean> | boolean {
  return ctx.placement.any('decode', new Set([...excluded, worker.id]))
}
