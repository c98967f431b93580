/** Turns the JSON of a body into an engine request. All validation happens here, before anything starts. */
import type { WorkerEngine } from '../types.ts'
import { ApiError, badRequest } from './api-error.ts'
import { type Api, type ApiPrompt, type ApiRequest, readApiRequest, tooLong } from './api-request.ts'
import type { ServerSettings } from './context.ts'
import { Fields, isRecord } from './fields.ts'
import { givenPromptIds, type KvAction, readKvAction } from './handoff-params.ts'

export interface Plan {
  readonly asked: ApiRequest
  readonly promptIds: Int32Array
  readonly maxTokens: number
  /** How many of the last prompt tokens were generated before. */
  readonly generated: number
  readonly kvAction: KvAction
}

/** Read first: if a prefill worker holds blocks for this request, every kind of refusal must free them. */
export function kvActionOf(body: unknown): KvAction {
  const kv = isRecord(body) ? body['kv_transfer_params'] : undefined
  return readKvAction(isRecord(kv) ? new Fields(kv, ['kv_transfer_params']) : undefined)
}

export function planOf(
  settings: ServerSettings,
  engine: Pick<WorkerEngine, 'tokenizer'>,
  api: Api,
  body: unknown,
  kvAction: KvAction,
): Plan {
  const asked = readApiRequest(api, body, settings, settings.sampling)
  checkFollowed(settings, asked)
  checkModel(settings, asked.model)
  checkRole(settings, asked, kvAction)
  checkRow(settings, asked.row)
  checkStopIds(engine, asked)
  const promptIds =
    (api === 'chat' ? givenPromptIds(asked.kv, settings) : undefined) ??
    promptIdsOf(settings, engine, asked.prompt)
  if (kvAction.kind === 'fetch' && kvAction.target.tokens > promptIds.length) {
    const found = `${kvAction.target.tokens} tokens, the prompt has ${promptIds.length}`
    throw badRequest(
      `The hand-off does not match the prompt: remote_num_tokens is ${found}.`,
      'kv_transfer_params',
    )
  }
  const { generated } = asked
  if (generated >= promptIds.length)
    throw badRequest(
      `eldr_generated must be less than ${promptIds.length}, the tokens of the prompt, got ${generated}.`,
      'eldr_generated',
    )
  const maxTokens = limitOf(settings, asked, promptIds.length)
  return { asked, promptIds, maxTokens, generated, kvAction }
}

export function checkModel({ model }: ServerSettings, asked: string | undefined): void {
  if (asked !== undefined && asked !== model)
    throw new ApiError(404, `The model \`${asked.slice(0, 200)}\` does not exist.`, { param: 'model' })
}

/**
 * Token ids within the vocabulary. Text that cannot fit, however it is tokenized, is refused before it is
 * encoded.
 */
export function promptIdsOf(
  { maxModelLen }: Pick<ServerSettings, 'maxModelLen'>,
  { tokenizer }: Pick<WorkerEngine, 'tokenizer'>,
  prompt: ApiPrompt,
): Int32Array {
  if ('ids' in prompt) {
    const outside = prompt.ids.find(id => id >= tokenizer.size)
    if (outside !== undefined) throw badRequest(`Token id ${outside} is out of vocabulary`, 'prompt')
    return prompt.ids
  }
  const least = tokenizer.leastTokens('messages' in prompt ? prompt.messages : prompt.text)
  if (least > maxModelLen) throw tooLong(maxModelLen, `at least ${least}`)
  return 'messages' in prompt ? tokenizer.chat(prompt.messages) : tokenizer.encode(prompt.text)
}

/** As in vLLM: the ids index the logits, so they must be in the vocabulary. */
function checkStopIds({ tokenizer }: Pick<WorkerEngine, 'tokenizer'>, { stopTokenIds }: ApiRequest): void {
  const outside = [...stopTokenIds].filter(id => id >= tokenizer.size)
  if (outside.length === 0) return
  const shown = `[${outside.slice(0, 10).join(', ')}${outside.length > 10 ? ', …' : ''}]`
  throw badRequest(
    `token_id(s) ${shown} in stop_token_ids contain out-of-vocab token ids. Vocabulary size: ${tokenizer.size}`,
    'stop_token_ids',
  )
}

/** The request was sent to a worker of the wrong role: an error of the sender, not of the client. */
function checkRole({ role }: ServerSettings, asked: ApiRequest, { kind }: KvAction): void {
  if (kind === 'hand_off' && role === 'decode')
    throw new ApiError(501, 'This worker has the role decode: it cannot hand off KV blocks.')
  if (kind === 'record' && role === 'decode')
    throw new ApiError(501, 'This worker has the role decode: it does not capture experts of prompts.')
  if (kind === 'fetch' && role === 'prefill')
    throw new ApiError(501, 'This worker has the role prefill: it cannot fetch KV blocks.')
  if (kind === 'record' && asked.stream) throw badRequest('A recorded request cannot be streamed.', 'stream')
}

/** Replay invents its text, so these fields change nothing; for a model they would. */
function checkFollowed({ rows }: ServerSettings, { unfollowed: [field] }: ApiRequest): void {
  if (rows === undefined && field !== undefined)
    throw badRequest(`This worker does not support ${field}.`, field)
}

function checkRow({ rows }: ServerSettings, row: number | undefined): void {
  if (row === undefined) return
  if (rows === undefined) throw badRequest('eldr_row is only for workers that replay a trace.', 'eldr_row')
  if (row >= rows)
    throw badRequest(
      `eldr_row must be less than ${rows}, the number of requests in the trace, got ${row}.`,
      'eldr_row',
    )
}

function limitOf(
  { maxModelLen }: ServerSettings,
  { maxTokens, minTokens }: ApiRequest,
  promptTokens: number,
): number {
  const wanted = maxTokens ?? Math.max(1, minTokens)
  if (promptTokens + wanted > maxModelLen) {
    throw badRequest(
      `This model's maximum context length is ${maxModelLen} tokens. However, you requested ${wanted} output tokens and your prompt contains ${promptTokens} input tokens, for a total of ${promptTokens + wanted} tokens. Please reduce the length of the input prompt or the number of requested output tokens.`,
      'input_tokens',
    )
  }
  return maxTokens ?? maxModelLen - promptTokens
}
