/** One attempt on one worker whose response goes to the client: sent, watched, and given back once. */
import type { WorkerSpec } from '../../cluster/worker.ts'
import { Attempt, type AttemptEnd, type Leg } from '../observe/request-observer.ts'
import { NEVER } from '../routing/lost-workers.ts'
import type { DecodePlacement, Placement } from '../routing/placement.ts'
import { isUnreachable } from './attempt.ts'
import type { FlowContext } from './context.ts'
import type { Generation } from './generate.ts'
import { type LegEnd, type LegLimits, runLeg } from './leg.ts'
import { generationRules, type ResponseRules } from './response-rules.ts'
import { workerHeaders } from './worker-headers.ts'

interface Sending {
  readonly placement: Placement & Partial<Pick<DecodePlacement, 'policy'>>
  /** 1 for the first attempt. */
  readonly number: number
  readonly body: Buffer
  readonly limits: LegLimits
}

/** Sends a generation to a prefill or decode worker. */
export async function sendGeneration(
  ctx: FlowContext,
  generation: Generation,
  { placement, number, body, limits }: Sending,
): Promise<LegEnd> {
  const { request, path } = generation
  const { worker } = placement
  const end = await send(ctx, generation, {
    worker,
    limits,
    message: { method: 'POST', path, body },
    rules: generationRules(ctx.engine, worker, request.stream),
    // A worker that turns out to be lost is given up only while there is another attempt.
    mayLose: number <= ctx.settings.retries.max,
    attempt: { leg: worker.role, number, streamed: request.stream, policy: placement.policy },
  }).catch((error: unknown) => {
    placement.end('ignored')
    throw error
  })
  if (end.kind === 'served' && end.status === 200) placement.end('succeeded')
  else if (end.kind !== 'failed') placement.end('ignored')
  // A worker that has no room has not failed.
  else placement.end(end.status === 429 ? 'ignored' : 'failed', isUnreachable(end.failure.kind))
  return end
}

export interface Message {
  readonly worker: WorkerSpec
  readonly message: { readonly method: 'GET' | 'POST'; readonly path: string; readonly body?: Buffer }
  readonly rules: ResponseRules
  readonly limits: LegLimits
  readonly mayLose: boolean
  readonly attempt: {
    readonly leg: Leg
    readonly number: number
    readonly streamed: boolean
    readonly policy?: string | undefined
  }
}

/** Tells observers of the attempt. The caller ends the placement. */
export async function send(
  ctx: FlowContext,
  { exchange, events, requestId, sink }: Omit<Generation, 'request' | 'path'>,
  { worker, message, rules, limits, mayLose, attempt: options }: Message,
): Promise<LegEnd> {
  const { method } = message
  const attempt = new Attempt({ ...options, worker, requestId, method, servesClient: true })
  events.attemptStarted(attempt)
  const headers = workerHeaders(ctx, exchange, requestId, worker, attempt.trace ?? events.trace)
  const lost = mayLose ? ctx.lost.of(worker.id) : NEVER
  const plan = { rules, limits, sink, stop: exchange, lost, events, attempt }
  const end = await runLeg(ctx.upstreams, worker.url, { ...message, headers }, plan).catch(
    (error: unknown) => {
      events.attemptEnded(attempt, { kind: 'fault' })
      throw error
    },
  )
  events.attemptEnded(attempt, observedEnd(end))
  return end
}

function observedEnd(end: LegEnd): AttemptEnd {
  if (end.kind !== 'failed') return end
  const { failure, status } = end
  return { kind: 'failed', cause: failure.kind, why: failure.message, status }
}
