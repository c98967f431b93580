/**
 * The first leg: a prefill worker reads the prompt and says where its KV cache is. Retried elsewhere when a
 * worker fails.
 */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { Handoff } from '../engines/engine.ts'
import { type RefusalCode, Refusal } from '../http/refusal.ts'
import { Attempt, type AttemptEnd } from '../observe/request-observer.ts'
import { NEVER } from '../routing/lost-workers.ts'
import type { Placement } from '../routing/placement.ts'
import { type ReplyHeaders, type UpstreamResponse, UpstreamFailure } from '../upstream/upstreams.ts'
import { attempts, done, exclude, failed, isUnreachable, type Tried } from './attempt.ts'
import type { FlowContext } from './context.ts'
import type { Generation } from './generate.ts'
import { noWorker, workersFull } from './generation-end.ts'
import { prefixKeyOf } from './prefix-key.ts'
import { releaseHandoff } from './release-handoff.ts'
import { workerHeaders } from './worker-headers.ts'

export type PrefillEnd =
  | HandedOff
  /** The worker blames the client. */
  | {
      readonly kind: 'refused'
      readonly status: number
      readonly headers: ReplyHeaders
      readonly body: Buffer
    }
  /** The client left, or its time is up. */
  | { readonly kind: 'stopped' }

export interface HandedOff {
  readonly kind: 'handed_off'
  readonly handoff: Handoff
  /** The prefill worker. */
  readonly worker: WorkerSpec
  /** When the head of the response came: the lease of the blocks has run since then at the latest. */
  readonly leasedMs: number
  readonly prefilledMs: number
}

/** Large enough for the token ids of a long chat. */
const MAX_RESPONSE_BYTES = 64 << 20

/** `decode`: the chosen decode worker, where the engine wants it chosen before prefill. */
export function prefill(
  ctx: FlowContext,
  generation: Generation,
  decode: WorkerSpec | undefined,
): Promise<PrefillEnd> {
  const { exchange, request } = generation
  // The worker that prefilled the client's prompt has it in its prefix cache.
  const prefixKey = prefixKeyOf(generation.first ?? request, ctx.settings.routing.prefixTokens)
  const excluded = new Set<string>()
  let refusal: Refusal | undefined
  return attempts(ctx, generation, async (number): Promise<Tried<PrefillEnd>> => {
    if (number > 1 && exchange.stopped !== undefined) return done({ kind: 'stopped' })
    const placement = await ctx.placement.toPrefill(prefixKey, request.promptTokens, excluded)
    if (placement === undefined) throw refusal ?? noWorker('prefill')
    let end: PrefillEnd | PrefillFailed
    try {
      end = await prefillOn(ctx, generation, { placement, number, decode })
    } catch (error) {
      placement.end('ignored')
      throw error
    }
    if (end.kind !== 'failed') return done(end)
    exclude(excluded, placement.worker, end.cause)
    refusal = end.code === 'ELDR_OVERLOADED' ? workersFull() : new Refusal(end.code, { retryAfterSeconds: 1 })
    return failed('prefill', end.cause, excluded, refusal)
  })
}

interface PrefillFailed {
  readonly kind: 'failed'
  readonly cause: string
  readonly why: string
  readonly code: RefusalCode
  readonly status?: number
}

interface PrefillPlan {
  readonly placement: Placement
  readonly number: number
  readonly decode: WorkerSpec | undefined
}

/** One attempt on one worker. */
async function prefillOn(
  ctx: FlowContext,
  generation: Generation,
  { placement, number, decode }: PrefillPlan,
): Promise<PrefillEnd | PrefillFailed> {
  const { exchange, events, requestId, path, request } = generation
  const { worker } = placement
  const { timeouts, retries } = ctx.settings
  const attempt = new Attempt({
    leg: 'prefill',
    worker,
    number,
    requestId,
    servesClient: false,
    streamed: false,
  })
  events.attemptStarted(attempt)
  const body = ctx.engine.prefillBody(request, worker, decode)
  const headers = workerHeaders(ctx, exchange, requestId, worker, attempt.trace ?? events.trace)
  const limits = {
    timeoutMs: timeouts.prefillMs,
    maxBytes: MAX_RESPONSE_BYTES,
    // The worker handed off while the gateway was giving up on it.
    onLate(late: UpstreamResponse) {
      const read = judge(ctx, late, worker, request)
      if (read.kind === 'handed_off') releaseHandoff(ctx, generation, read, new Set(), decode)
    },
  }
  const lost = number > retries.max ? NEVER : ctx.lost.of(worker.id)
  const response = await ctx.upstreams
    .ask(worker.url, { method: 'POST', path, headers, body }, limits, exchange, lost)
    .catch((error: unknown) => {
      if (error instanceof UpstreamFailure) return error
      placement.end('ignored')
      events.attemptEnded(attempt, { kind: 'fault' })
      throw error
    })
  const end: PrefillEnd | PrefillFailed =
    exchange.stopped !== undefined && response instanceof UpstreamFailure
      ? { kind: 'stopped' }
      : judge(ctx, response, worker, request)
  if (end.kind === 'handed_off') placement.end('succeeded')
  // A worker that has no room has not failed.
  else if (end.kind === 'failed' && end.code !== 'ELDR_OVERLOADED')
    placement.end('failed', { unreachable: isUnreachable(end.cause) })
  else placement.end('ignored')
  events.attemptEnded(attempt, end.kind === 'handed_off' ? observedHandoff(end.handoff) : end)
  return end
}

function judge(
  { engine }: FlowContext,
  response: UpstreamResponse | UpstreamFailure,
  worker: WorkerSpec,
  request: Generation['request'],
): PrefillEnd | PrefillFailed {
  if (response instanceof UpstreamFailure) {
    const code = response.kind === 'timeout' ? 'ELDR_PREFILL_TIMEOUT' : 'ELDR_PREFILL_FAILED'
    return { kind: 'failed', cause: response.kind, why: response.message, code }
  }
  const { status, headers, body, startedMs } = response
  const missingRank = engine.missingRank(worker, status, body)
  if (missingRank !== undefined)
    return { kind: 'failed', cause: 'status', why: missingRank, code: 'ELDR_PREFILL_FAILED', status }
  if (status >= 400 && status < 500 && status !== 429) return { kind: 'refused', status, headers, body }
  if (status !== 200) {
    const code = status === 429 ? 'ELDR_OVERLOADED' : 'ELDR_PREFILL_FAILED'
    return { kind: 'failed', cause: 'status', why: `status ${status}`, code, status }
  }
  const read = engine.readHandoff(body, request)
  if (read.kind === 'invalid')
    return { kind: 'failed', cause: 'handoff', why: read.why, code: 'ELDR_HANDOFF_BAD', status }
  return {
    kind: 'handed_off',
    handoff: read.handoff,
    worker,
    leasedMs: startedMs,
    prefilledMs: performance.now(),
  }
}

function observedHandoff({ promptTokens, engineId }: Handoff): AttemptEnd {
  return { kind: 'handed_off', promptTokens, engineId }
}
