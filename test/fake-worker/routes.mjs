// Routes: both legs of a PD request as in vLLM's NixlConnector, and the routes that a router polls.
import { randomUUID } from 'node:crypto'
import {
  complaint,
  completionBody,
  errorBody,
  FIRST_ID,
  json,
  modelsBody,
  streamTexts,
  tokenizeBody,
  tokensWanted,
} from './bodies.mjs'
import { metricsText } from './metrics.mjs'
import { Stream } from './streams.mjs'
import { promptTokenIds, promptTokens } from './tokens.mjs'

const BLOCK_TOKENS = 16

/** @typedef {import('./fake-worker.mjs').FakeWorker} FakeWorker */
/** @typedef {import('./exchange.mjs').Exchange} Exchange */

/** @type {Readonly<Record<string, (worker: FakeWorker, exchange: Exchange) => void>>} */
const ROUTES = {
  'POST /v1/completions': generate,
  'POST /v1/chat/completions': generate,
  'GET /health': (_worker, exchange) => exchange.send(200, ''),
  'GET /v1/models': (worker, exchange) => exchange.send(200, modelsBody(worker.settings.model)),
  'GET /metrics': (worker, exchange) =>
    exchange.send(200, metricsText(worker), { contentType: 'text/plain; version=0.0.4; charset=utf-8' }),
  'GET /version': (_worker, exchange) => exchange.send(200, json({ version: '0.32.0' })),
  'POST /tokenize': (_worker, exchange) => exchange.send(200, tokenizeBody(exchange.request.json)),
  // Not in vLLM: lets a benchmark read the counters of a worker process and set its speed.
  'GET /fake/counters': (worker, exchange) => exchange.send(200, json(worker.counters)),
  'POST /fake/pace': (worker, exchange) => {
    worker.settings.gapMs = Number(exchange.request.json?.gapMs ?? 0)
    exchange.send(200, '{}')
  },
}
const PATHS = new Set(Object.keys(ROUTES).map(route => route.slice(route.indexOf(' ') + 1)))

/** @param {FakeWorker} worker @param {Exchange} exchange */
export function answer(worker, exchange) {
  const { method, path } = exchange.request
  const route = ROUTES[`${method} ${path}`]
  if (route !== undefined) return route(worker, exchange)
  const status = PATHS.has(path) ? 405 : 404
  return exchange.send(status, json({ detail: status === 405 ? 'Method Not Allowed' : 'Not Found' }))
}

/** @param {FakeWorker} worker @param {Exchange} exchange */
function generate(worker, exchange) {
  const { request } = exchange
  const { counters, settings } = worker
  const body = request.json
  const wrong = complaint(body, { isChat: request.isChat, model: settings.model })
  if (wrong !== undefined) return exchange.send(wrong[0], errorBody(...wrong))
  const wrongRank = worker.wrongRank(request)
  if (wrongRank !== undefined) return exchange.send(400, errorBody(400, wrongRank))
  if (settings.role !== 'both' && settings.role !== request.leg) counters.misdirected++
  if (request.leg === 'decode' && !worker.readHandoff(request)) {
    return exchange.send(
      500,
      errorBody(500, 'Failed to load KV cache: the remote engine does not hold this request.'),
    )
  }
  const id = `${request.isChat ? 'chatcmpl' : 'cmpl'}-${requestId(request)}`
  const total = tokensWanted(body) ?? settings.tokens
  const prompt = promptLength(request)
  const isPrefill = request.leg === 'prefill'
  if (body.stream === true)
    return stream(worker, exchange, {
      id,
      total,
      prompt,
      waitMs: isPrefill ? settings.prefillMs : settings.firstTokenMs,
    })
  const waitMs = isPrefill ? settings.prefillMs : settings.firstTokenMs + (total - 1) * settings.gapMs
  return after(waitMs, exchange, () => {
    worker.tokens.add(prompt, total)
    const isPush = settings.protocol === 'push'
    exchange.send(
      200,
      completionBody({
        id,
        model: settings.model,
        isChat: request.isChat,
        prompt,
        tokens: total,
        kv: isPrefill && !isPush ? handoffText(worker, request, id, prompt) : 'null',
        more: isPrefill && isPush ? pushText(worker, request, id, prompt) : '',
        cached: settings.cachedTokens?.(request, prompt),
        promptTokenIds: body.return_token_ids === true ? promptTokenIds(body) : undefined,
      }),
    )
  })
}

/**
 * @param {FakeWorker} worker
 * @param {Exchange} exchange
 * @param {{id: string, total: number, prompt: number, waitMs: number}} what
 */
function stream(worker, exchange, { id, total, prompt, waitMs }) {
  const { settings } = worker
  const { json: body, isChat } = exchange.request
  const ids = settings.tokenIds ? promptTokenIds(body) : []
  const hasIds = settings.tokenIds && body.return_token_ids === true
  // A prompt that ends with tokens of a response goes on with it.
  const from = ids.length - ids.findLastIndex(each => each < FIRST_ID) - 1
  const texts = streamTexts({ id, model: settings.model, isChat, ids: hasIds ? ids : undefined })
  const usage =
    body.stream_options?.include_usage === true
      ? texts.usage(prompt, total, settings.cachedTokens?.(exchange.request, prompt))
      : ''
  worker.tokens.add(prompt, 0)
  worker.engine.add(
    new Stream(exchange, {
      texts,
      total,
      usage,
      from,
      hasIds,
      gapMs: settings.gapMs,
      dueMs: performance.now() + waitMs,
    }),
  )
}

/**
 * `kv_transfer_params` of a prefill response as JSON, like NixlPullConnectorScheduler.request_finished.
 * @param {FakeWorker} worker
 * @param {import('./received-request.mjs').ReceivedRequest} request
 * @param {string} id
 * @param {number} prompt
 */
function handoffText(worker, request, id, prompt) {
  const remoteId = worker.giveHandoff(id)
  const eldr = worker.eldrText(request, prompt)
  const where = `"remote_host":"127.0.0.1","remote_port":5600,"tp_size":1,"dcp_size":1,"pp_size":1,"transfer_mode":"pull"`
  const what = `"remote_engine_id":"${worker.engineIdOf(request)}","remote_request_id":"${remoteId}","remote_block_ids":[${blockIds(prompt)}]`
  const size = `"remote_num_tokens":${prompt},"remote_prefill_cached_tokens":0,"remote_blocks_expiry_time":null`
  const counts = eldr === undefined ? '' : `,"eldr":${eldr}`
  return `{"do_remote_prefill":true,"do_remote_decode":false,${what},${where},${size}${counts}}`
}

/**
 * The same for an engine that pushes its KV cache to a decode worker (test/gateway/push-engine.ts).
 * @param {FakeWorker} worker
 * @param {import('./received-request.mjs').ReceivedRequest} request
 * @param {string} id
 * @param {number} prompt
 */
function pushText(worker, request, id, prompt) {
  const pushed = { id: worker.push(id, request.json.push_kv.to) }
  return `,"pushed":${json(pushed)},"experts":${worker.eldrText(request, prompt) ?? 'null'}`
}

/** @type {Map<number, string>} */
const blockTexts = new Map()

/** Ids of the blocks of this many tokens, as JSON. @param {number} tokens */
function blockIds(tokens) {
  const blocks = Math.ceil(tokens / BLOCK_TOKENS)
  let text = blockTexts.get(blocks)
  if (text === undefined) {
    text = json(Array.from({ length: blocks }, (_, i) => 1000 + i))
    blockTexts.set(blocks, text)
  }
  return text
}

/** @param {import('./received-request.mjs').ReceivedRequest} request */
function promptLength(request) {
  const ids = request.kv?.prompt_token_ids
  return Array.isArray(ids) ? ids.length : promptTokens(request.json)
}

/**
 * The client's id if it needs no escaping in JSON.
 * @param {import('./received-request.mjs').ReceivedRequest} request
 */
function requestId(request) {
  const given = request.headers['x-request-id']
  return given !== undefined && /^[\w.:-]{1,200}$/.test(given) ? given : randomUUID().replaceAll('-', '')
}

/** @param {number} ms @param {Exchange} exchange @param {() => void} action */
function after(ms, exchange, action) {
  if (ms === 0) return action()
  setTimeout(() => {
    if (exchange.open) action()
  }, ms)
  return undefined
}
