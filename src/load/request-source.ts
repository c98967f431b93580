/** What is sent: a prompt, how many tokens are wanted, and the rest of a body. The same source and seed give the same bytes. */
import { EldrError } from '../errors.ts'
import { createRandom } from '../math/random.ts'
import type { Api } from './endpoint.ts'

export interface Message {
  readonly role: string
  readonly content: unknown
}

/** A prompt as text, as token ids or as a conversation. */
export type Prompt = string | ArrayLike<number> | { readonly messages: readonly Message[] }

export interface Asked {
  readonly prompt: Prompt
  /** The server's default unless told. */
  readonly maxTokens?: number
  /** Request of a trace whose experts the embedded worker replays. */
  readonly row?: number
  /** Of this request's body besides; they win. */
  readonly fields?: Readonly<Record<string, unknown>>
}

/** The seed of a sampled request: of its place in the file alone, so that neither order nor company changes what is drawn. */
export function seedOf(seed: number, request: number): number {
  return createRandom(seed)
    .fork(request)
    .below(2 ** 31)
}

export interface RequestSource {
  /** For people and for the JSON: what it is, with its numbers. */
  readonly about: {
    readonly kind: 'file' | 'trace' | 'synthetic' | 'workload'
    readonly [key: string]: unknown
  }
  /** Request `index` of the run. */
  ask(index: number): Asked
}

export interface BodySettings {
  readonly api: Api
  readonly model: string
  /** Go on until maxTokens; a field of vLLM's and its kin. Only where a length is wanted. */
  readonly ignoreEos: boolean
  /** Fields that every body has besides; they win. */
  readonly extra?: Readonly<Record<string, unknown>>
}

export function bodyOf(
  { prompt, maxTokens, row, fields }: Asked,
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
