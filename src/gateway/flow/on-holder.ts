import type { Turn } from '../../policy/conversations.ts'
import type { Outcome } from '../observe/request-observer.ts'
import { done, exclude, failed, type Tried } from './attempt.ts'
import type { FlowContext } from './context.ts'
import type { Generation } from './generate.ts'
import { outcomeOf, refusalOf } from './generation-end.ts'
import { limitsOf, sendGeneration } from './send.ts'

/**
 * The next turn of a conversation, on the decode worker that has its KV cache and computes the rest of the
 * prompt itself. Undefined if it takes the usual way, which is also that of its retry.
 */
export async function onHolder(
  ctx: FlowContext,
  generation: Generation,
  turn: Turn,
  excluded: Set<string>,
): Promise<Tried<Outcome> | undefined> {
  const { exchange, events, request, requestId } = generation
  if (ctx.settings.conversations.skipPrefillBelowTokens === 0) return undefined
  const askedMs = performance.now()
  const placement = await ctx.placement.toHolder(requestId, turn, excluded)
  if (placement === undefined) return undefined
  events.decided({ requestId, askedMs, decidedMs: performance.now(), prefilledMs: undefined, placement })
  events.promptCounted(request.promptTokens)
  const limits = limitsOf(ctx, request, ctx.settings.timeouts.prefillMs)
  const end = await sendGeneration(ctx, generation, { placement, number: 1, limits })
  if (end.kind !== 'failed' || end.begun) return done(outcomeOf(exchange, end))
  exclude(excluded, placement.worker, end.failure.kind)
  return failed('decode', end.failure.kind, excluded, refusalOf('decode', end))
}
