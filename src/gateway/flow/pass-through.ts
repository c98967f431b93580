/**
 * Routes that the gateway takes no part in: one decode worker responds, and the response is passed on
 * unchanged.
 */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { EngineAdapter } from '../engines/engine.ts'
import type { Exchange } from '../http/exchange.ts'
import { last, withoutFields } from '../http/client-request.ts'
import { scanObject } from '../json/scan.ts'
import { Attempt, type Outcome, type RequestEvents } from '../observe/request-observer.ts'
import { NEVER } from '../routing/lost-workers.ts'
import { attempts, done, exclude, failed, type Tried } from './attempt.ts'
import type { FlowContext } from './context.ts'
import { noWorker, outcomeOf, refusalOf, stoppedOutcome } from './generation-end.ts'
import type { LegEnd, LegLimits } from './leg.ts'
import { PASS_THROUGH_RULES } from './response-rules.ts'
import { send } from './send.ts'
import { clientSink } from './sink.ts'

export interface PassedRequest {
  readonly exchange: Exchange
  readonly events: RequestEvents
  readonly path: string
  readonly body: Buffer
}

/** Any decode worker has the model and the tokenizer. */
export async function passThrough(ctx: FlowContext, passed: PassedRequest): Promise<Outcome> {
  const { exchange, events, path } = passed
  const { settings, placement: client, engine } = ctx
  exchange.clientStallMs = settings.server.clientStallMs
  // Only a GET is repeated after a worker may have seen it.
  const isSafe = exchange.request.method !== 'POST'
  const given = isSafe ? undefined : withoutFields(passed.body, engine.reservedFields)
  const limits = limitsOf(ctx, path, given?.body)
  const sink = clientSink(exchange)
  const excluded = new Set<string>()
  return attempts(ctx, passed, async (number): Promise<Tried<Outcome>> => {
    if (exchange.stopped !== undefined) return done(stoppedOutcome(exchange))
    const placement = await client.toDecode(exchange.id, undefined, 0, excluded)
    if (placement === undefined) throw noWorker('decode')
    const { worker } = placement
    const mayLose = isSafe && number <= settings.retries.max
    const requestId = exchange.id
    const method = isSafe ? 'GET' : 'POST'
    const attempt = new Attempt({
      leg: 'relay',
      worker,
      number,
      requestId,
      servesClient: true,
      streamed: false,
      method,
    })
    const lost = mayLose ? ctx.lost.of(worker.id) : NEVER
    let end: LegEnd
    try {
      const body = bodyFor(engine, given, worker)
      const sending = { attempt, path, body, rules: PASS_THROUGH_RULES, limits, lost }
      end = await send(ctx, { exchange, events, requestId, sink }, sending)
    } catch (error) {
      placement.end('ignored')
      throw error
    }
    // How these routes go says little about how well a worker generates.
    placement.end('ignored', { unreachable: end.kind === 'failed' && end.failure.kind === 'connect' })
    if (end.kind !== 'failed' || end.begun) return done(outcomeOf(exchange, end))
    const { kind: cause } = end.failure
    exclude(excluded, worker, cause)
    const refusal = refusalOf('decode', end)
    if (!isSafe && cause !== 'connect') throw refusal
    return failed('decode', cause, excluded, refusal)
  })
}

/** `given`: undefined for a GET. What is not a JSON object passes unchanged. */
function bodyFor(
  engine: EngineAdapter,
  given: ReturnType<typeof withoutFields> | undefined,
  worker: WorkerSpec,
): Buffer | undefined {
  if (given?.members === undefined) return given?.body
  return engine.aloneBody({ body: given.body, members: given.members }, worker)
}

/** A worker that generates without a stream sends nothing before it is done; other routes respond soon. */
function limitsOf({ settings }: FlowContext, path: string, body: Buffer | undefined): LegLimits {
  const { prefillMs, firstTokenMs, betweenTokensMs, requestMs } = settings.timeouts
  if (body === undefined || !path.startsWith('/v1/')) return { firstByteMs: firstTokenMs, betweenTokensMs }
  const stream = last(scanObject(body) ?? [], 'stream')
  const streams = stream !== undefined && body.toString('latin1', stream.valueStart, stream.end) === 'true'
  const firstByteMs = streams ? Math.min(requestMs, prefillMs + firstTokenMs) : requestMs
  return { firstByteMs, betweenTokensMs }
}
