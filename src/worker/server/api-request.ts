/** Reads and validates the fields of vLLM’s two generation routes that this worker supports. */
import type { ChatMessage } from '../types.ts'
import { badRequest, badShape } from './api-error.ts'
import { readMessages } from './chat-messages.ts'
import { Fields, fieldsOf, idsOf } from './fields.ts'
import { refuseOtherPrompts, refuseWhatIsNotServed, unfollowedOf } from './unserved.ts'

export type Api = 'completions' | 'chat'

export type ApiPrompt =
  | { readonly text: string }
  | { readonly ids: Int32Array }
  | { readonly messages: readonly ChatMessage[] }

export interface ApiRequest {
  readonly api: Api
  readonly model: string | undefined
  readonly prompt: ApiPrompt
  readonly stream: boolean
  readonly includeUsage: boolean
  /** Usage in every event of the stream. */
  readonly continuousUsage: boolean
  /** Undefined: up to the context length. */
  readonly maxTokens: number | undefined
  readonly minTokens: number
  readonly ignoreEos: boolean
  readonly temperature: number
  /** 0: all tokens. */
  readonly topK: number
  readonly topP: number
  readonly seed: number | undefined
  readonly stop: readonly string[]
  readonly stopTokenIds: ReadonlySet<number>
  readonly includeStop: boolean
  readonly returnTokenIds: boolean
  /** `eldr_row`: the recorded request to follow. */
  readonly row: number | undefined
  /** `eldr_generated`: how many of the last prompt tokens were generated before; 0 for a new request. */
  readonly generated: number
  /** Fields in the request that would change a model’s text and that no back end supports. */
  readonly unfollowed: readonly string[]
  readonly requestId: string | undefined
  readonly kv: Fields | undefined
}

export interface PromptLimits {
  /** Maximum tokens of prompt and response together. */
  readonly maxModelLen: number
}

/** Sampling defaults for requests that do not set them. */
export interface SamplingDefaults {
  readonly temperature: number
  /** 0: all tokens. */
  readonly topK: number
  readonly topP: number
}

export const PLAIN_SAMPLING: SamplingDefaults = { temperature: 1, topK: 0, topP: 1 }

/** vLLM’s default for completions; a chat, or a limit of null, goes on to the end of the context. */
const COMPLETION_TOKENS = 16
/** Each stop string is searched for after every token. */
const MAX_STOPS = 128

export function readApiRequest(
  api: Api,
  body: unknown,
  limits: PromptLimits,
  sampling = PLAIN_SAMPLING,
): ApiRequest {
  const fields = fieldsOf(body)
  refuseOtherPrompts(fields)
  const prompt = api === 'chat' ? { messages: readMessages(fields) } : readPrompt(fields, limits.maxModelLen)
  const stream = fields.bool('stream')
  const options = fields.object('stream_options')
  if (options !== undefined && !stream)
    throw badRequest('Stream options can only be defined when `stream=True`.', 'stream_options')
  refuseWhatIsNotServed(fields, api)
  const maxTokens = limitOf(fields, api)
  return {
    api,
    model: fields.text('model'),
    prompt,
    stream,
    includeUsage: options?.bool('include_usage') ?? false,
    continuousUsage: (options?.bool('include_usage') && options.bool('continuous_usage_stats')) ?? false,
    maxTokens,
    minTokens: leastOf(fields, maxTokens),
    ignoreEos: fields.bool('ignore_eos'),
    temperature: fields.between('temperature', 0, Infinity, 'non-negative') ?? sampling.temperature,
    topK: topKOf(fields) ?? sampling.topK,
    topP: fields.between('top_p', Number.MIN_VALUE, 1, 'in (0, 1]') ?? sampling.topP,
    seed: seedOf(fields),
    stop: readStops(fields),
    stopTokenIds: new Set(fields.ids('stop_token_ids')),
    includeStop: fields.bool('include_stop_str_in_output'),
    returnTokenIds: fields.bool('return_token_ids'),
    row: countOf(fields, 'eldr_row'),
    generated: countOf(fields, 'eldr_generated') ?? 0,
    unfollowed: unfollowedOf(fields),
    requestId: fields.text('request_id'),
    kv: fields.object('kv_transfer_params'),
  }
}

/** Text, token ids, or a list with one of either. Ids that exceed the context are not read. */
export function readPrompt(fields: Fields, maxModelLen: number): ApiPrompt {
  const given = fields.value('prompt')
  const several = Array.isArray(given) && (typeof given[0] === 'string' || Array.isArray(given[0]))
  if (several && given.length > 1)
    throw badRequest(
      'This worker accepts one prompt per request; a gateway in front of it splits lists of prompts.',
      'prompt',
    )
  const prompt: unknown = several ? given[0] : given
  if (prompt === undefined || prompt === '')
    throw badRequest('Either prompt or prompt_embeds must be provided and non-empty.', 'prompt')
  if (typeof prompt === 'string') return { text: prompt }
  if (!Array.isArray(prompt)) throw badShape('string_type', ['prompt'], 'Input should be a valid string')
  if (prompt.length === 0)
    throw badRequest('Either prompt or prompt_embeds must be provided and non-empty.', 'prompt')
  if (prompt.length > maxModelLen) throw tooLong(maxModelLen, `${prompt.length}`)
  return { ids: idsOf(prompt, ['prompt']) }
}

/** `tokens`: the count as text. */
export function tooLong(maxModelLen: number, tokens: string): Error {
  const words = `This model's maximum context length is ${maxModelLen} tokens. However, your prompt contains ${tokens} input tokens. Please reduce the length of the input prompt.`
  return badRequest(words, 'input_tokens')
}

function limitOf(fields: Fields, api: Api): number | undefined {
  const [name, given] =
    api === 'chat' && fields.value('max_completion_tokens') !== undefined
      ? ['max_completion_tokens', fields.whole('max_completion_tokens')]
      : ['max_tokens', fields.whole('max_tokens')]
  if (given !== undefined && given < 1)
    throw badRequest(`max_tokens must be at least 1, got ${given}.`, name as string)
  const unlimited = api === 'chat' || fields.isNull('max_tokens')
  return (given as number | undefined) ?? (unlimited ? undefined : COMPLETION_TOKENS)
}

function leastOf(fields: Fields, maxTokens: number | undefined): number {
  const least = fields.whole('min_tokens') ?? 0
  if (least < 0)
    throw badRequest(`min_tokens must be greater than or equal to 0, got ${least}.`, 'min_tokens')
  if (maxTokens !== undefined && least > maxTokens)
    throw badRequest(
      `min_tokens must be less than or equal to max_tokens=${maxTokens}, got ${least}.`,
      'min_tokens',
    )
  return least
}

function seedOf(fields: Fields): number | undefined {
  const seed = fields.whole('seed')
  if (seed !== undefined && Math.abs(seed) > 2 ** 63)
    throw badShape('less_than_equal', ['seed'], 'Input should be an integer of 64 bits')
  return seed
}

function countOf(fields: Fields, name: string): number | undefined {
  const count = fields.whole(name)
  if (count !== undefined && count < 0)
    throw badRequest(`${name} must be greater than or equal to 0, got ${count}.`, name)
  return count
}

function readStops(fields: Fields): string[] {
  const given = fields.value('stop')
  const stops = given === undefined ? [] : typeof given === 'string' ? [given] : fields.list('stop')!
  stops.forEach((stop, i) => {
    if (typeof stop !== 'string') throw badShape('string_type', ['stop', i], 'Input should be a valid string')
    if (stop === '') throw badRequest('stop cannot contain an empty string.', 'stop')
  })
  if (stops.length > MAX_STOPS)
    throw badRequest(`stop must have at most ${MAX_STOPS} strings, got ${stops.length}.`, 'stop')
  return stops as string[]
}

function topKOf(fields: Fields): number | undefined {
  const given = fields.whole('top_k')
  fields.between('top_k', -1, 2 ** 31, '0 (disable), or at least 1')
  return given === undefined ? undefined : Math.max(0, given)
}
