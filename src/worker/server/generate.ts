/**
 * `/v1/completions` and `/v1/chat/completions`: one prompt, one choice; either leg of a hand-off or a
 * complete request.
 */
import { randomBytes, randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { releaseKv } from '../kv/kv-client.ts'
import { RemoteHandoff } from '../kv/remote-handoff.ts'
import type { Api } from './api-request.ts'
import type { WorkerContext } from './context.ts'
import { type ResponseSink, GenerationRun, type RunEnd } from './generation-run.ts'
import { handoffParams, promptHash, recordedParams } from './handoff-params.ts'
import { type Plan, planOf, kvActionOf } from './plan.ts'
import { rankFor } from './ranks.ts'
import { readJson } from './read-body.ts'
import { streamSink, wholeSink } from './sinks.ts'

export async function generate(
  server: WorkerContext,
  api: Api,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const arrivedMs = performance.now()
  const body = await readJson(request, server.bodies)
  const kvAction = kvActionOf(body)
  let ctx = server
  let plan: Plan
  try {
    ctx = rankFor(server, request)
    plan = planOf(ctx.settings, ctx.engine, api, body, kvAction)
  } catch (error) {
    // The prefill worker holds blocks for this request, which will never read them. As in vLLM, they are
    // freed.
    if (kvAction.kind === 'fetch')
      ctx.live.follow(releaseKv(kvAction.target, ctx.settings.kvLimits, new AbortController().signal))
    throw error
  }
  run(ctx, plan, requestIdOf(request, plan.asked.requestId), response, arrivedMs)
}

function run(ctx: WorkerContext, plan: Plan, id: string, response: ServerResponse, arrivedMs: number): void {
  const { engine, settings, metrics, live } = ctx
  const { asked, promptIds, maxTokens, kvAction } = plan
  const remote = kvAction.kind === 'fetch' ? remoteOf(ctx, plan) : undefined
  const name = `${asked.api === 'chat' ? 'chatcmpl' : 'cmpl'}-${id}`
  const head = { api: asked.api, id: name, created: Math.floor(Date.now() / 1000), model: settings.model }
  const [isHandoff, isDecodeLeg] = [kvAction.kind === 'hand_off', kvAction.kind === 'fetch']
  const cachedTokens = ({ finished }: RunEnd) =>
    settings.promptDetails
      ? ((kvAction.kind === 'fetch' ? kvAction.cachedTokens : undefined) ?? finished.cachedTokens)
      : undefined
  const common = { head, asked, promptIds, response, cachedTokens }
  const sink = asked.stream
    ? streamSink({
        ...common,
        stallMs: settings.clientStallMs,
        onStalled() {
          metrics.clientsStalled.inc()
          response.req.socket.destroy()
        },
      })
    : lookFirst(
        isHandoff,
        response,
        wholeSink({ ...common, kvTransferParams: end => paramsOf(ctx, plan, name, response, end) }),
      )

  const generation = new GenerationRun({
    // The text of a prefill leg is discarded; the decode leg decides where it stops.
    asked: isHandoff ? { ...asked, stop: [], stopTokenIds: new Set() } : asked,
    promptTokens: promptIds.length,
    maxTokens,
    tokenizer: engine.tokenizer,
    sink,
    metrics,
    arrivedMs,
    onEnd(end, taken) {
      forget()
      response.off('close', onClose)
      socket.off('close', onClose)
      if (remote !== undefined) live.follow(remote.close())
      // The client never received the address of these blocks.
      if (end.kind === 'finished' && !taken) end.lease?.release()
      if (isDecodeLeg && end.kind === 'finished' && end.decode !== undefined) ctx.decoded.add(id, end.decode)
    },
  })
  const { socket } = response.req
  const onClose = () => {
    if (response.writableFinished) return
    metrics.clientsGone.inc()
    generation.leave()
  }
  const forget = live.add({ end: () => generation.callOff() })
  response.on('close', onClose)
  // A pipelined response that waits for the previous one is not told when the connection closes.
  if (response.socket === null) socket.setMaxListeners(0).on('close', onClose)
  generation.begin(
    engine.generate(
      {
        id: name,
        promptIds,
        maxTokens,
        minTokens: asked.minTokens,
        // If the first token ends the text, the decode leg generates it again and needs the blocks.
        ignoreEos: asked.ignoreEos || isHandoff,
        stopTokenIds: asked.stopTokenIds,
        temperature: asked.temperature,
        topK: asked.topK,
        topP: asked.topP,
        seed: asked.seed,
        row: asked.row,
        generated: plan.generated,
        keepForDecode: isHandoff && !asked.stream, // a stream cannot carry the address of the blocks
        remote,
        recordDecode: kvAction.kind === 'record' || isDecodeLeg,
      },
      generation,
    ),
  )
  if (response.destroyed || socket.destroyed) generation.leave()
}

/**
 * A closed connection is noticed only between steps, so check it once more before the blocks are handed off.
 */
function lookFirst(isHandoff: boolean, response: ServerResponse, sink: ResponseSink): ResponseSink {
  if (!isHandoff) return sink
  return {
    ...sink,
    finish(end) {
      const look = () => {
        // The request’s socket: a pipelined response has none yet.
        const { socket } = response.req
        if (response.destroyed || socket.destroyed || socket.readableEnded) end.finished.lease?.release()
        else sink.finish(end)
      }
      // Socket events are handled between two of these.
      setImmediate(() => setImmediate(look))
    },
  }
}

function remoteOf(
  { settings, metrics, log }: WorkerContext,
  { kvAction, promptIds }: Plan,
): RemoteHandoff | undefined {
  if (kvAction.kind !== 'fetch') return undefined
  return new RemoteHandoff(kvAction.target, {
    promptHash: promptHash(promptIds, kvAction.target.tokens),
    leaseMs: kvAction.leaseMs ?? settings.leaseMs,
    limits: settings.kvLimits,
    onRead(bytes, ms) {
      metrics.transferBytes.inc(bytes)
      metrics.transferSeconds.observe(ms / 1000)
    },
    onFailed({ kind, message }) {
      metrics.transfersFailed.inc()
      log.warn(
        { kind, why: message, from: `${kvAction.target.host}:${kvAction.target.port}` },
        'failed to read KV blocks',
      )
    },
  })
}

/** KV blocks and experts in the response. From here on the side channel owns the lease. */
function paramsOf(
  ctx: WorkerContext,
  { kvAction, promptIds }: Plan,
  name: string,
  { req: { socket } }: ServerResponse,
  { finished }: RunEnd,
): object | null {
  if (kvAction.kind === 'record') return recordedParams(finished.counts, finished.decode)
  const { lease } = finished
  if (kvAction.kind !== 'hand_off' || lease === undefined || ctx.handoffs === undefined) return null
  const { leases, origin, unread } = ctx.handoffs
  // Clients may use the same request id several times at once.
  let remoteId: string
  do remoteId = `${name}-${randomBytes(4).toString('hex')}`
  while (leases.find(remoteId) !== undefined)
  leases.keep(remoteId, { blocks: lease, promptHash: promptHash(promptIds, lease.tokens) })
  unread.sent(socket, remoteId)
  return handoffParams(origin, remoteId, lease, finished.cachedTokens, finished.counts)
}

/** The header takes precedence, as in vLLM. Ids that are not valid in a header are ignored. */
function requestIdOf(request: IncomingMessage, given: string | undefined): string {
  const header = request.headers['x-request-id']
  const id = typeof header === 'string' && header !== '' ? header : given
  return id !== undefined && /^[\x21-\x7e]{1,200}$/.test(id) ? id : randomUUID().replaceAll('-', '')
}
