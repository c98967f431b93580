/** Sends one attempt whose response goes to the client, reports it, and ends its placement. */
import { MIN_STREAM_TOKENS } from '../../policy/step-cost.ts'
import type { Handoff } from '../engines/engine.ts'
import type { ClientRequest } from '../http/client-request.ts'
import { Attempt, type AttemptEnd } from '../observe/request-observer.ts'
import { NEVER } from '../routing/lost-workers.ts'
import type { DecodePlacement, Placement } from '../routing/placement.ts'
import { isUnreachable } from './attempt.ts'
import type { FlowContext } from './context.ts'
import type { Generation } from './generate.ts'
import { type LegEnd, type LegLimits, runLeg } from './leg.ts'
import type { StopSignal } from '../upstream/upstreams.ts'
import { GenerationRules, type ResponseRules } from './response-rules.ts'
import { UsageReader } from '../json/usage-reader.ts'
import { workerHeaders } from './worker-headers.ts'

interface Sending {
  readonly placement: Placement & Partial<Pick<DecodePlacement, 'policy' | 'conversation'>>
  /** 1 for the first attempt. */
  readonly number: number
  /** Undefined for a worker that prefills as well. */
  readonly handoff?: Handoff
  readonly limits: LegLimits
}

/** Sends a generation to a prefill or decode worker. */
export async function sendGeneration(
  ctx: FlowContext,
  generation: Generation,
  { placement, number, handoff, limits }: Sending,
): Promise<LegEnd> {
  const { request, path, tracker } = generation
  const { worker } = placement
  const attempt = new Attempt({
    leg: worker.role,
    worker,
    number,
    requestId: generation.requestId,
    servesClient: true,
    streamed: request.stream,
    policy: placement.policy,
    method: 'POST',
    resumes: generation.first !== undefined,
  })
  // A turn that skips prefill relies on the worker's KV cache: whether it was there shows in the response.
  const usage = placement.conversation === 'alone' ? new UsageReader() : undefined
  const rules = new GenerationRules(ctx.engine, worker, request.stream, { tracker, usage })
  // A worker that turns out to be lost is given up only while there is another attempt.
  const lost = number <= ctx.settings.retries.max ? ctx.lost.of(worker.id) : NEVER
  let end: LegEnd
  try {
    const body =
      handoff === undefined
        ? ctx.engine.aloneBody(request, worker, tracker?.fields)
        : ctx.engine.decodeBody(request, handoff, worker, tracker?.fields)
    end = await send(ctx, generation, { attempt, path, body, rules, limits, lost })
  } catch (error) {
    placement.end('ignored')
    throw error
  }
  tracker?.ended(worker, end)
  if (end.kind === 'served' && end.status === 200)
    placement.end('succeeded', {
      tokens: attempt.tokens,
      tokenUs: tokenUsOf(attempt),
      computedTokens: usage?.computedTokens,
      firstTokenMs: request.stream ? attempt.firstByteMs - attempt.startedMs : undefined,
    })
  // A worker that goes on with other tokens than the client has is not at fault.
  else if (end.kind !== 'failed' || tracker?.diverged) placement.end('ignored')
  // A worker that has no room has not failed.
  else
    placement.end(end.status === 429 ? 'ignored' : 'failed', { unreachable: isUnreachable(end.failure.kind) })
  return end
}

function tokenUsOf({ tokens, tokenMs }: Attempt): number | undefined {
  return tokenMs === undefined || tokens < MIN_STREAM_TOKENS ? undefined : 1000 * tokenMs
}

/**
 * A non-streamed response shows nothing before its end: it may take as long as a stream of as many tokens.
 * `prefillMs`: added where the worker prefills as well.
 */
export function limitsOf(
  { settings }: FlowContext,
  { stream, maxTokens }: ClientRequest,
  prefillMs = 0,
): LegLimits {
  const { firstTokenMs, betweenTokensMs, requestMs } = settings.timeouts
  const restMs = stream ? 0 : Math.max(0, (maxTokens ?? Infinity) - 1) * betweenTokensMs
  return { firstByteMs: Math.min(requestMs, prefillMs + firstTokenMs + restMs), betweenTokensMs }
}

export interface Sent {
  readonly attempt: Attempt
  readonly path: string
  readonly body: Buffer | undefined
  readonly rules: ResponseRules
  readonly limits: LegLimits
  /** Fires when the worker is lost. */
  readonly lost: StopSignal
}

/** Tells observers of the attempt. The caller ends the placement. */
export async function send(
  ctx: FlowContext,
  { exchange, events, requestId, sink, tracker }: Omit<Generation, 'request' | 'path'>,
  { attempt, path, body, rules, limits, lost }: Sent,
): Promise<LegEnd> {
  const { worker, method } = attempt
  events.attemptStarted(attempt)
  const headers = workerHeaders(ctx, exchange, requestId, worker, attempt.trace ?? events.trace)
  const movable = tracker && (() => tracker.movable())
  const plan = { rules, limits, sink, stop: exchange, lost, events, attempt, movable }
  let end: LegEnd
  try {
    end = await runLeg(ctx.upstreams, worker.url, { method, path, headers, body }, plan)
  } catch (error) {
    events.attemptEnded(attempt, { kind: 'fault' })
    throw error
  }
  events.attemptEnded(attempt, observedEnd(end))
  return end
}

function observedEnd(end: LegEnd): AttemptEnd {
  if (end.kind !== 'failed') return end
  const { failure, status } = end
  return { kind: 'failed', cause: failure.kind, why: failure.message, status }
}
