// Response bodies of vLLM 0.32 as text. Completions are concatenated from strings, because this is a
// benchmark's hot path.
import { promptTokenIds } from './tokens.mjs'

export const MAX_MODEL_LEN = 131_072
/** Id of the first token of a response; the next ones follow. All have five digits. */
export const FIRST_ID = 50_000
const CREATED = 1_790_000_000 // constant, so that bodies can be compared

/** @param {unknown} value */
export const json = value => JSON.stringify(value)

/** @type {Readonly<Record<number, string>>} */
const ERROR_TYPES = {
  400: 'BadRequestError',
  404: 'NotFoundError',
  429: 'RateLimitError',
  500: 'InternalServerError',
  503: 'ServiceUnavailableError',
}

/** vLLM's error body. @param {number} status @param {string} message */
export function errorBody(status, message) {
  return json({
    error: { message, type: ERROR_TYPES[status] ?? 'InternalServerError', param: null, code: status },
  })
}

/** @param {string} model */
export function modelsBody(model) {
  const card = {
    id: model,
    object: 'model',
    created: CREATED,
    owned_by: 'vllm',
    root: model,
    parent: null,
    max_model_len: MAX_MODEL_LEN,
  }
  return json({ object: 'list', data: [card] })
}

/** @param {any} body */
export function tokenizeBody(body) {
  const tokens = promptTokenIds(body)
  return json({ count: tokens.length, max_model_len: MAX_MODEL_LEN, tokens, token_strs: null })
}

/**
 * vLLM's validation error of a request: [status, message], or undefined. A prefill leg that is built
 * carelessly from a client's request violates one of these rules.
 * @param {any} body
 * @param {{isChat: boolean, model: string}} expected
 * @returns {[number, string] | undefined}
 */
export function complaint(body, { isChat, model }) {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return [400, 'JSON decode error']
  if (body.model !== undefined && body.model !== model)
    return [404, `The model \`${body.model}\` does not exist.`]
  if (isChat ? !Array.isArray(body.messages) : body.prompt === undefined)
    return [400, `Field required: ${isChat ? 'messages' : 'prompt'}`]
  if (body.stream_options && body.stream !== true)
    return [400, 'Stream options can only be defined when `stream=True`.']
  const wanted = tokensWanted(body)
  if (wanted !== undefined && !(Number.isInteger(wanted) && wanted >= 1))
    return [400, `max_tokens must be at least 1, got ${wanted}.`]
  if (wanted !== undefined && body.min_tokens > wanted)
    return [400, `min_tokens must be less than or equal to max_tokens=${wanted}, got ${body.min_tokens}.`]
  return undefined
}

/**
 * Requested tokens; in a chat max_completion_tokens takes precedence, as in vLLM.
 * @param {any} body
 * @returns {number | undefined}
 */
export function tokensWanted(body) {
  return (
    (body.messages !== undefined ? body.max_completion_tokens : undefined) ?? body.max_tokens ?? undefined
  )
}

/** @param {number} prompt @param {number} completion @param {number} [cached] */
export function usageText(prompt, completion, cached) {
  const details = cached === undefined ? 'null' : `{"cached_tokens":${cached}}`
  return `{"prompt_tokens":${prompt},"total_tokens":${prompt + completion},"completion_tokens":${completion},"prompt_tokens_details":${details}}`
}

/**
 * Text of token n, always five characters, so that every event of a stream has the same length.
 * @param {number} n
 */
export function tokenText(n) {
  return n < 10_000 ? TOKENS[n] : ` ${String(n % 10_000).padStart(4, '0')}`
}
const TOKENS = Array.from({ length: 10_000 }, (_, n) => ` ${String(n).padStart(4, '0')}`)

/**
 * A response that is not streamed. `kv` is JSON, 'null' from a decode worker.
 * @param {{id: string, model: string, isChat: boolean, prompt: number, tokens: number, kv: string,
 *   more?: string, promptTokenIds?: number[], cached?: number}} answer
 */
export function completionBody({ id, model, isChat, prompt, tokens, kv, more = '', promptTokenIds, cached }) {
  let text = ''
  for (let n = 0; n < tokens; n++) text += tokenText(n)
  const ids = `"prompt_logprobs":null,"prompt_token_ids":${promptTokenIds === undefined ? 'null' : json(promptTokenIds)}`
  const said = isChat
    ? `"message":{"role":"assistant","content":"${text}","refusal":null,"tool_calls":[],"reasoning":null}`
    : `"text":"${text}",${ids}`
  const choice = `{"index":0,${said},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}`
  const head = `"id":"${id}","object":"${isChat ? 'chat.completion' : 'text_completion'}","created":${CREATED},"model":"${model}"`
  const rest = `"service_tier":null,"system_fingerprint":null,"usage":${usageText(prompt, tokens, cached)}${isChat ? `,${ids}` : ''}`
  return `{${head},"choices":[${choice}],${rest},"kv_transfer_params":${kv}${more}}`
}

/**
 * The events of a stream: token events of about 220 bytes, in two halves around the token's text.
 * `ids`: of the prompt, if asked for.
 * @param {{id: string, model: string, isChat: boolean, ids?: number[]}} answer
 */
export function streamTexts({ id, model, isChat, ids }) {
  const object = isChat ? 'chat.completion.chunk' : 'text_completion'
  const start = `data: {"id":"${id}","object":"${object}","created":${CREATED},"model":"${model}","choices":[`
  const [before, after] = isChat ? ['{"index":0,"delta":{"content":"', '"}'] : ['{"index":0,"text":"', '"']
  /** @param {string} reason */
  const end = reason => `${after},"logprobs":null,"finish_reason":${reason},`
  const role = `${start}{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`
  const prompt = ids === undefined ? '' : `"prompt_token_ids":${json(ids)}`
  const noPrompt = ids === undefined || isChat ? '' : '"prompt_token_ids":null,'
  /** @param {number} n */
  const idOf = n => `"token_ids":${ids === undefined ? 'null' : `[${FIRST_ID + n}]`}}]}\n\n`
  return {
    /** A chat stream starts with an event without a token. */
    opening: isChat ? `${role}${prompt === '' ? '' : `,${prompt}`}}\n\n` : '',
    before: start + before,
    /** After the text of token n. The first of a completion has the ids of the prompt. @param {number} n */
    after: (n, isFirst = false, isLast = false) =>
      end(isLast ? '"length"' : 'null') + (isFirst && noPrompt !== '' ? `${prompt},` : noPrompt) + idOf(n),
    /** @param {number} prompt @param {number} tokens @param {number} [cached] */
    usage: (prompt, tokens, cached) => `${start}],"usage":${usageText(prompt, tokens, cached)}}\n\n`,
  }
}
