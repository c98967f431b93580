/** Routes of the worker’s HTTP server. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { VERSION } from '../../version.ts'
import { readTraceparent } from '../../wire/trace-context.ts'
import { ApiError, badRequest } from './api-error.ts'
import { readPrompt, tooLong } from './api-request.ts'
import { readMessages } from './chat-messages.ts'
import type { WorkerContext } from './context.ts'
import { fieldsOf } from './fields.ts'
import { generate } from './generate.ts'
import { checkModel, promptIdsOf } from './plan.ts'
import { mergedPages, namedRank } from './ranks.ts'
import { readJson } from './read-body.ts'
import { asApiError, send, sendError, sendJson } from './send.ts'
import { stateOf, unionOf } from './state.ts'
import { refuseOtherPrompts } from './unserved.ts'

type Route = (ctx: WorkerContext, request: IncomingMessage, response: ServerResponse) => void | Promise<void>

const STARTED_SECONDS = Math.floor(Date.now() / 1000)

const ROUTES: ReadonlyMap<string, Route> = new Map<string, Route>([
  ['POST /v1/completions', (ctx, request, response) => generate(ctx, 'completions', request, response)],
  ['POST /v1/chat/completions', (ctx, request, response) => generate(ctx, 'chat', request, response)],
  [
    'GET /v1/models',
    ({ settings }, _, response) =>
      sendJson(response, 200, JSON.stringify({ object: 'list', data: [modelCard(settings)] })),
  ],
  ['POST /tokenize', tokenize],
  ['POST /detokenize', detokenize],
  ['GET /health', (_ctx, _, response) => send(response, 200, '', 'application/json')],
  ['GET /ping', (_ctx, _, response) => send(response, 200, '', 'application/json')],
  ['GET /version', (_ctx, _, response) => sendJson(response, 200, JSON.stringify({ version: VERSION }))],
  [
    'GET /load',
    ({ live }, _, response) => sendJson(response, 200, JSON.stringify({ server_load: live.size })),
  ],
  ['GET /metrics', metrics],
  ['POST /reset_prefix_cache', resetPrefixCache],
  [
    'GET /eldr/union',
    (ctx, request, response) =>
      sendJson(response, 200, JSON.stringify(unionOf((namedRank(ctx, request) ?? ctx).engine))),
  ],
  ['GET /eldr/decoded', decoded],
  [
    'GET /eldr/state',
    (ctx, request, response) =>
      sendJson(response, 200, JSON.stringify(stateOf(namedRank(ctx, request) ?? ctx))),
  ],
])

export async function answer(
  ctx: WorkerContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const path = (request.url ?? '/').split('?', 1)[0]!
  const given = request.headers['x-request-id']
  if (typeof given === 'string' && given !== '') response.setHeader('x-request-id', given)
  try {
    const route = ROUTES.get(`${request.method} ${path}`)
    if (route === undefined) {
      request.resume()
      throw notServed(path, response)
    }
    await route(ctx, request, response)
  } catch (error) {
    const known = asApiError(error)
    if (known.status === 500) {
      const traceId = readTraceparent(request.headers['traceparent'])?.traceId
      ctx.log.error({ err: error, path, reqId: given, traceId }, 'request failed')
    }
    sendError(response, known)
  }
}

function decoded(ctx: WorkerContext, request: IncomingMessage, response: ServerResponse): void {
  const after = new URL(request.url ?? '/', 'http://worker').searchParams.get('after') ?? '0'
  if (!/^\d{1,15}$/.test(after)) throw badRequest('after must be a whole number.', 'after')
  const log = (namedRank(ctx, request) ?? ctx).decoded
  // Asked every few seconds: a connection that is kept for that would never look idle.
  response.setHeader('connection', 'close')
  sendJson(response, 200, JSON.stringify(log.since(Number(after))))
}

function notServed(path: string, response: ServerResponse): ApiError {
  const methods = [...ROUTES.keys()]
    .filter(route => route.endsWith(` ${path}`))
    .map(route => route.slice(0, route.indexOf(' ')))
  if (methods.length === 0) return new ApiError(404, 'Not Found', { type: 'Not Found' })
  response.setHeader('allow', methods.join(', '))
  return new ApiError(405, 'Method Not Allowed', { type: 'Method Not Allowed' })
}

function modelCard({ model, maxModelLen }: WorkerContext['settings']) {
  const card = {
    id: model,
    object: 'model',
    created: STARTED_SECONDS,
    owned_by: 'eldr',
    root: model,
    parent: null,
  }
  return { ...card, max_model_len: maxModelLen, permission: [] }
}

async function tokenize(
  { settings, engine, bodies }: WorkerContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const fields = fieldsOf(await readJson(request, bodies))
  checkModel(settings, fields.text('model'))
  refuseOtherPrompts(fields)
  const prompt =
    fields.value('messages') === undefined
      ? readPrompt(fields, settings.maxModelLen)
      : { messages: readMessages(fields) }
  const ids = promptIdsOf(settings, engine, prompt)
  const strings = fields.bool('return_token_strs')
    ? Array.from(ids, id => engine.tokenizer.tokenString(id))
    : null
  sendJson(
    response,
    200,
    JSON.stringify({
      count: ids.length,
      max_model_len: settings.maxModelLen,
      tokens: [...ids],
      token_strs: strings,
    }),
  )
}

async function detokenize(
  { settings, engine, bodies }: WorkerContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const fields = fieldsOf(await readJson(request, bodies))
  checkModel(settings, fields.text('model'))
  const given = fields.list('tokens')
  if (given === undefined) throw fields.missing('tokens')
  if (given.length > settings.maxModelLen) throw tooLong(settings.maxModelLen, `${given.length}`)
  const ids = fields.ids('tokens')!
  const outside = ids.find(id => id >= engine.tokenizer.size)
  if (outside !== undefined) throw badRequest(`Token id ${outside} is out of vocabulary`, 'tokens')
  sendJson(response, 200, JSON.stringify({ prompt: engine.tokenizer.decode(ids) }))
}

async function metrics(
  { ranks }: WorkerContext,
  _: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const pages = await Promise.all(ranks.map(({ metrics: { registry } }) => registry.metrics()))
  send(response, 200, mergedPages(pages), ranks[0]!.metrics.registry.contentType)
}

function resetPrefixCache(
  { ranks }: WorkerContext,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  request.resume()
  const reset = ranks.map(({ engine }) => engine.resetPrefixCache())
  if (reset.includes(false))
    throw new ApiError(
      409,
      ranks.length === 1
        ? 'KV blocks are in use; the prefix cache was not reset.'
        : 'KV blocks are in use; the prefix cache was not reset on every engine.',
      { type: 'Conflict' },
    )
  sendJson(response, 200, '{"success":true}')
}
