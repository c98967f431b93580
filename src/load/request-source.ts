/**
 * Request bodies: a prompt, a number of tokens and other fields. The same source and seed give the same
 * bytes.
 */
import { EldrError } from '../errors.ts'
import { createRandom } from '../math/random.ts'
import type { Api } from './endpoint.ts'

export interface Message {
  readonly role: string
  readonly content: unknown
}

/** A prompt as text, token ids or a conversation. */
export type Prompt = string | ArrayLike<number> | { readonly messages: readonly Message[] }

export interface PromptRequest {
  readonly prompt: Prompt
  /** Default: the server's. */
  readonly maxTokens?: number
  /** Row of the trace whose experts the embedded worker replays. */
  readonly row?: number
  /** Other fields of this request's body; they override the standard ones. */
  readonly fields?: Readonly<Record<string, unknown>>
}

/**
 * The sampling seed of a request. It depends only on the line in the file, so order and batching do not
 * change samples.
 */
export function seedOf(seed: number, request: number): number {
  return createRandom(seed)
    .fork(request)
    .below(2 ** 31)
}

export interface RequestSource {
  /** Description for tables and JSON. */
  readonly about: {
    readonly kind: 'file' | 'trace' | 'synthetic' | 'workload'
    readonly [key: string]: unknown
  }
  /** Request `index` of the run. */
  request(index: number): PromptRequest
  /** Told of each response, if present: its text, or undefined if it failed. */
  ended?(index: number, text: string | undefined): void
}

export interface BodySettings {
  readonly api: Api
  readonly model: string
  /** Generate exactly maxTokens; a field of vLLM and compatible servers, sent only with maxTokens. */
  readonly ignoreEos: boolean
  /** Extra fields of every body; they override all others. */
  readonly extra?: Readonly<Record<string, unknown>>
}

export function bodyOf(
  { prompt, maxTokens, row, fields }: PromptRequest,
  { api, model, ignoreEos, extra }: BodySettings,
): string {
  return JSON.stringify({
    model,
    ...promptFields(prompt, api),
    ...(maxTokens !== undefined && { max_tokens: maxTokens, ...(ignoreEos && { ignore_eos: true }) }),
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
    ...(row !== undefined && { eldr_row: row }),
    ...fields,
    ...extra,
  })
}

function promptFields(prompt: Prompt, api: Api): object {
  if (typeof prompt === 'object' && 'messages' in prompt) {
    if (api === 'chat') return { messages: prompt.messages }
    throw wrongApi('messages', '--api chat')
  }
  if (typeof prompt === 'string')
    return api === 'chat' ? { messages: [{ role: 'user', content: prompt }] } : { prompt }
  if (api === 'chat') throw wrongApi('token ids', '--api completions')
  return { prompt: Array.from(prompt) }
}

function wrongApi(what: string, expected: string): EldrError {
  return new EldrError('ELDR_USAGE', {
    found: `a prompt of ${what}`,
    expected,
    todo: 'Change --api, or the prompts.',
  })
}
