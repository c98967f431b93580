/** `/v1/completions` and `/v1/chat/completions`: one prompt, one choice, either leg of a hand-off or the whole of a request. */
import { randomBytes, randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { releaseKv } from '../kv/kv-client.ts'
import { RemoteHandoff } from '../kv/remote-handoff.ts'
import type { Api } from './api-request.ts'
import type { WorkerContext } from './context.ts'
import { type AnswerSink, GenerationRun, type RunEnd } from './generation-run.ts'
import { handoffParams, promptHash, recordedParams } from './handoff-params.ts'
import { type Plan, planOf, wishOf } from './plan.ts'
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
  const wish = wishOf(body)
  let ctx = server
  let plan: Plan
  try {
    ctx = rankFor(server, request)
    plan = planOf(ctx.settings, ctx.engine, api, body, wish)
  } catch (error) {
    // Blocks wait for this request, which will never read them.
    if (wish.kind === 'fetch')
      ctx.live.follow(releaseKv(wish.target, ctx.settings.kvLimits, new AbortController().signal))
    throw error
  }
  run(ctx, plan, requestIdOf(request, plan.asked.requestId), response, arrivedMs)
}

function run(ctx: WorkerContext, plan: Plan, id: string, response: ServerResponse, arrivedMs: number): void {
  const { engine, settings, metrics, live } = ctx
  const { asked, promptIds, maxTokens, wish } = plan
  const remote = wish.kind === 'fetch' ? remoteOf(ctx, plan) : undefined
  const name = `${asked.api === 'chat' ? 'chatcmpl' : 'cmpl'}-${id}`
  const head = { api: asked.api, id: name, created: Math.floor(Date.now() / 1000), model: settings.model }
  const isHandoff = wish.kind === 'hand_off'
  const cachedTokens = ({ finished }: RunEnd) =>
    settings.promptDetails
      ? ((wish.kind === 'fetch' ? wish.cachedTokens : undefined) ?? finished.cachedTokens)
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
    // Text of a first leg is thrown away: where it stops is the second one's to say.
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
      // Nobody has been told where these blocks are.
      if (end.kind === 'finished' && !taken) end.lease?.release()
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
  // An answer that waits for those before it is not told when the connection closes.
  if (response.socket === null) socket.setMaxListeners(0).on('close', onClose)
  generation.begin(
    engine.generate(
      {
        id: name,
        promptIds,
        maxTokens,
        minTokens: asked.minTokens,
        // A first token that ends the text is found again by the second leg, which needs the blocks for it.
        ignoreEos: asked.ignoreEos || isHandoff,
        stopTokenIds: asked.stopTokenIds,
        temperature: asked.temperature,
        topK: asked.topK,
        topP: asked.topP,
        seed: asked.seed,
        row: asked.row,
        keepForDecode: isHandoff && !asked.stream, // a stream has no place to say where the blocks are
        remote,
        recordDecode: wish.kind === 'record',
      },
      generation,
    ),
  )
  if (response.destroyed || socket.destroyed) generation.leave()
}

/** That a client has left is heard between steps only: before blocks are handed off its connection is looked at once more. */
function lookFirst(isHandoff: boolean, response: ServerResponse, sink: AnswerSink): AnswerSink {
  if (!isHandoff) return sink
  return {
    ...sink,
    finish(end) {
      const look = () => {
        // Of the request: an answer that waits for those before it has no socket yet.
        const { socket } = response.req
        if (response.destroyed || socket.destroyed || socket.readableEnded) end.finished.lease?.release()
        else sink.finish(end)
      }
      // Between two of these the sockets are read.
      setImmediate(() => setImmediate(look))
    },
  }
}

function remoteOf(
  { settings, metrics, log }: WorkerContext,
  { wish, promptIds }: Plan,
): RemoteHandoff | undefined {
  if (wish.kind !== 'fetch') return undefined
  return new RemoteHandoff(wish.target, {
    promptHash: promptHash(promptIds, wish.target.tokens),
    leaseMs: wish.leaseMs ?? settings.leaseMs,
    limits: settings.kvLimits,
    onRead(bytes, ms) {
      metrics.transferBytes.inc(bytes)
      metrics.transferSeconds.observe(ms / 1000)
    },
    onFailed({ kind, message }) {
      metrics.transfersFailed.inc()
      log.warn(
        { kind, why: message, from: `${wish.target.host}:${wish.target.port}` },
        'KV blocks could not be read',
      )
    },
  })
}

/** What the answer says of KV blocks and experts. From here on the lease is the side channel's. */
function paramsOf(
  ctx: WorkerContext,
  { wish, promptIds }: Plan,
  name: string,
  { req: { socket } }: ServerResponse,
  { finished }: RunEnd,
): object | null {
  if (wish.kind === 'record') return recordedParams(finished.counts, finished.decode)
  const { lease } = finished
  if (wish.kind !== 'hand_off' || lease === undefined || ctx.handoffs === undefined) return null
  const { leases, origin, unread } = ctx.handoffs
  // Clients may use a name for several requests at once.
  let remoteId: string
  do remoteId = `${name}-${randomBytes(4).toString('hex')}`
  while (leases.find(remoteId) !== undefined)
  leases.keep(remoteId, { blocks: lease, promptHash: promptHash(promptIds, lease.tokens) })
  unread.sent(socket, remoteId)
  return handoffParams(origin, remoteId, lease, finished.cachedTokens, finished.counts)
}

/** The header counts first, as in vLLM; what could not stand in a header of ours is not taken up. */
function requestIdOf(request: IncomingMessage, given: string | undefined): string {
  const header = request.headers['x-request-id']
  const id = typeof header === 'string' && header !== '' ? header : given
  return id !== undefined && /^[\x21-\x7e]{1,200}$/.test(id) ? id : randomUUID().replaceAll('-', '')
}
