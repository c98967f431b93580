/**
 * Reads a saved response of an engine that returns the experts of each token itself: vLLM
 * (`--enable-return-routed-experts`, base64 of .npy) or SGLang (`return_routed_experts`, base64 of raw
 * int32). There is one row per token, from the first prompt token to the last but one generated token.
 */
import { quoted } from '../trace/quoted.ts'
import { rawExpertsIn, routedExpertsIn } from '../wire/routed-experts.ts'
import { sha256 } from './jsonl-lines.ts'

export type SavedFormat = 'vllm' | 'sglang'

export interface SavedResponse {
  readonly model?: string
  readonly domain?: string
  readonly layers: number
  readonly topK: number
  /** [rows][layers][topK]; negative if the engine did not write them. */
  readonly ids: ArrayLike<number>
  readonly promptTokens: number
  /** Undefined if the response does not contain it. */
  readonly completionTokens: number | undefined
  /** Equal for equal prompts. */
  readonly key: string
}

/** Shape from the command line, for responses that do not contain it. */
export interface GivenShape {
  readonly layers?: number
  readonly topK?: number
}

/** Why a response cannot be used. */
export class UnusableResponse extends Error {}

type Fields = Readonly<Record<string, unknown>>

export function readSavedResponse(text: string, format: SavedFormat, given: GivenShape): SavedResponse {
  const { body, domain } = bodyIn(text)
  const { ids, layers, topK } = format === 'vllm' ? vllmIds(body, given) : sglangIds(body, given)
  const [meta, usage, choice] = [fields(body['meta_info']), fields(body['usage']), fields(choicesOf(body)[0])]
  const promptIds = [body['prompt_token_ids'], choice['prompt_token_ids']].find(Array.isArray) as
    | unknown[]
    | undefined
  const promptTokens = firstCount(meta['prompt_tokens'], usage['prompt_tokens'], promptIds?.length)
  if (promptTokens === undefined || promptTokens === 0)
    throw new UnusableResponse('no number of prompt tokens (usage.prompt_tokens)')
  const tokenIds = choice['token_ids']
  const completionTokens = firstCount(
    meta['completion_tokens'],
    usage['completion_tokens'],
    Array.isArray(tokenIds) ? tokenIds.length : undefined,
  )
  const { model } = body
  const key = sha256().update(
    promptIds === undefined ? promptRows(ids, layers * topK * promptTokens) : `ids ${promptIds.join()}`,
  )
  return {
    ids,
    layers,
    topK,
    promptTokens,
    completionTokens,
    key: key.digest('hex').slice(0, 32),
    model: typeof model === 'string' && model !== '' ? model : undefined,
    domain,
  }
}

/**
 * Unwraps the lines of `vllm run-batch` and OpenAI batches. A domain may be in the line or in the response.
 */
function bodyIn(text: string): { body: Fields; domain: string | undefined } {
  let line: unknown
  try {
    line = JSON.parse(text)
  } catch {
    throw new UnusableResponse(`invalid JSON (${quoted(text)})`)
  }
  if (!isRecord(line))
    throw new UnusableResponse(`not a response (${quoted(line)}): expected one JSON object per line`)
  const outer = fields(line['response'])
  const body = isRecord(outer['body']) ? outer['body'] : isRecord(line['response']) ? outer : line
  if (isRecord(body['error']) || isRecord(line['error']))
    throw new UnusableResponse(`an error (${quoted(fields(body['error'] ?? line['error'])['message'])})`)
  const domain = line['domain'] ?? body['domain']
  if (domain === undefined || domain === null) return { body, domain: undefined }
  if (typeof domain !== 'string' || domain.trim() === '' || domain.includes(','))
    throw new UnusableResponse(`invalid domain ${quoted(domain)}: expected a name without commas`)
  return { body, domain: domain.trim() }
}

interface Ids {
  readonly ids: ArrayLike<number>
  readonly layers: number
  readonly topK: number
}

/** One array of all tokens or, in versions around 0.21, one for the prompt and one for the rest. */
function vllmIds(body: Fields, given: GivenShape): Ids {
  const choices = choicesOf(body)
  if (choices.length !== 1)
    throw new UnusableResponse(
      `${choices.length} choices: expected one prompt and one choice (n = 1) per response`,
    )
  const parts = [body['prompt_routed_experts'], fields(choices[0])['routed_experts']]
    .filter(part => part !== undefined && part !== null)
    .map(vllmPart)
  const [first, second] = parts
  if (first === undefined)
    throw new UnusableResponse('no routed_experts: start the server with --enable-return-routed-experts')
  const { layers, topK } = first
  if ((given.layers ?? layers) !== layers || (given.topK ?? topK) !== topK)
    throw new UnusableResponse(`${layers} layers and top ${topK}, which differ from --layers and --top-k`)
  if (second === undefined) return first
  if (second.layers !== layers || second.topK !== topK)
    throw new UnusableResponse('different shapes of prompt_routed_experts and routed_experts')
  const ids = new Int32Array(first.ids.length + second.ids.length)
  ids.set(first.ids)
  ids.set(second.ids, first.ids.length)
  return { ids, layers, topK }
}

function vllmPart(value: unknown): Ids {
  if (Array.isArray(value)) return nestedIds(value)
  if (typeof value !== 'string')
    throw new UnusableResponse(`routed_experts that are not a string (${quoted(value)})`)
  const found = routedExpertsIn(value)
  const ids = 'reject' in found ? undefined : found.values()
  if ('reject' in found || ids === undefined)
    throw new UnusableResponse('routed_experts that are not base64 of a .npy file')
  const [rows, layers, topK] = found.shape
  if (found.shape.length !== 3 || !rows || !layers || !topK)
    throw new UnusableResponse(
      `routed_experts of shape [${found.shape.join(', ')}], not [tokens, layers, top_k]`,
    )
  return { ids, layers, topK }
}

/** Nested lists, as older versions write them. */
function nestedIds(value: readonly unknown[]): Ids {
  const [layers, topK] = [
    (value[0] as unknown[] | undefined)?.length,
    ((value[0] as unknown[] | undefined)?.[0] as unknown[] | undefined)?.length,
  ]
  const flat = value.flat(2)
  const isWhole =
    layers &&
    topK &&
    flat.length === value.length * layers * topK &&
    flat.every(id => Number.isInteger(id) && Math.abs(id as number) < 2 ** 31)
  if (!isWhole)
    throw new UnusableResponse('routed_experts that are not lists [tokens][layers][top_k] of whole numbers')
  return { ids: Int32Array.from(flat as number[]), layers, topK }
}

function sglangIds(body: Fields, { layers, topK }: GivenShape): Ids {
  if (layers === undefined || topK === undefined) throw new Error('SGLang’s rows do not contain their shape')
  const value = fields(body['meta_info'])['routed_experts'] ?? fields(body['sglext'])['routed_experts']
  if (value === undefined || value === null)
    throw new UnusableResponse(
      'no routed_experts in meta_info or sglext: start the server with --enable-return-routed-experts and send "return_routed_experts": true',
    )
  const ids = typeof value === 'string' ? rawExpertsIn(value) : undefined
  if (ids === undefined) throw new UnusableResponse('routed_experts that are not base64 of int32')
  if (ids.length === 0 || ids.length % (layers * topK) !== 0)
    throw new UnusableResponse(`${ids.length} expert ids, not a multiple of ${layers} layers × top ${topK}`)
  return { ids, layers, topK }
}

/** Identifies a prompt by its experts if the response has no token ids: equal prompts use equal experts. */
function promptRows(ids: ArrayLike<number>, length: number): Uint8Array {
  return new Uint8Array(Int32Array.from(Array.prototype.slice.call(ids, 0, length) as number[]).buffer)
}

const isRecord = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const fields = (value: unknown): Fields => (isRecord(value) ? value : {})
const choicesOf = (body: Fields): readonly unknown[] =>
  Array.isArray(body['choices']) ? (body['choices'] as unknown[]) : []
const firstCount = (...values: unknown[]): number | undefined =>
  values.find((value): value is number => Number.isInteger(value) && (value as number) >= 0)
