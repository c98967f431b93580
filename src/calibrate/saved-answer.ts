/**
 * A saved answer of an engine that returns the experts of each token by itself: vLLM (`--enable-return-routed-experts`, base64 of .npy) or
 * SGLang (`return_routed_experts`, base64 of raw int32). Rows are tokens from the first of the prompt to the last but one that was generated.
 */
import { quoted } from '../trace/quoted.ts'
import { rawExpertsIn, routedExpertsIn } from '../wire/routed-experts.ts'
import { sha256 } from './jsonl-lines.ts'

export type SavedFormat = 'vllm' | 'sglang'

export interface SavedAnswer {
  readonly model?: string
  readonly domain?: string
  readonly layers: number
  readonly topK: number
  /** [rows][layers][topK]; below 0 where nobody wrote them. */
  readonly ids: ArrayLike<number>
  readonly promptTokens: number
  /** Undefined when the answer does not say. */
  readonly completionTokens: number | undefined
  /** The same for the same prompt. */
  readonly key: string
}

/** Where an answer does not say it. */
export interface GivenShape {
  readonly layers?: number
  readonly topK?: number
}

/** What cannot be used, in words for a person. */
export class BadAnswer extends Error {}

type Fields = Readonly<Record<string, unknown>>

export function readSavedAnswer(text: string, format: SavedFormat, given: GivenShape): SavedAnswer {
  const { body, domain } = bodyIn(text)
  const { ids, layers, topK } = format === 'vllm' ? vllmIds(body, given) : sglangIds(body, given)
  const [meta, usage, choice] = [fields(body['meta_info']), fields(body['usage']), fields(choicesOf(body)[0])]
  const promptIds = [body['prompt_token_ids'], choice['prompt_token_ids']].find(Array.isArray) as
    | unknown[]
    | undefined
  const promptTokens = firstCount(meta['prompt_tokens'], usage['prompt_tokens'], promptIds?.length)
  if (promptTokens === undefined || promptTokens === 0)
    throw new BadAnswer('no number of prompt tokens (usage.prompt_tokens)')
  const made = choice['token_ids']
  const completionTokens = firstCount(
    meta['completion_tokens'],
    usage['completion_tokens'],
    Array.isArray(made) ? made.length : undefined,
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
    ...(typeof model === 'string' && model !== '' && { model }),
    ...(domain !== undefined && { domain }),
  }
}

/** The answer itself, or what `vllm run-batch` and OpenAI's batches write around it. A domain stands beside it or in it. */
function bodyIn(text: string): { body: Fields; domain: string | undefined } {
  let line: unknown
  try {
    line = JSON.parse(text)
  } catch {
    throw new BadAnswer(`no JSON (${quoted(text)})`)
  }
  if (!isRecord(line)) throw new BadAnswer(`no answer (${quoted(line)}): one JSON object a line`)
  const outer = fields(line['response'])
  const body = isRecord(outer['body']) ? outer['body'] : isRecord(line['response']) ? outer : line
  if (isRecord(body['error']) || isRecord(line['error']))
    throw new BadAnswer(`an error (${quoted(fields(body['error'] ?? line['error'])['message'])})`)
  const domain = line['domain'] ?? body['domain']
  if (domain === undefined || domain === null) return { body, domain: undefined }
  if (typeof domain !== 'string' || domain.trim() === '' || domain.includes(','))
    throw new BadAnswer(`the domain ${quoted(domain)}: a name without commas`)
  return { body, domain: domain.trim() }
}

interface Ids {
  readonly ids: ArrayLike<number>
  readonly layers: number
  readonly topK: number
}

/** One array of all tokens, or, in versions about 0.21, one of the prompt and one of the rest. */
function vllmIds(body: Fields, given: GivenShape): Ids {
  const choices = choicesOf(body)
  if (choices.length !== 1)
    throw new BadAnswer(`${choices.length} choices: one prompt and one choice (n = 1) an answer`)
  const parts = [body['prompt_routed_experts'], fields(choices[0])['routed_experts']]
    .filter(part => part !== undefined && part !== null)
    .map(vllmPart)
  const [first, second] = parts
  if (first === undefined)
    throw new BadAnswer('no routed_experts: start the server with --enable-return-routed-experts')
  const { layers, topK } = first
  if ((given.layers ?? layers) !== layers || (given.topK ?? topK) !== topK)
    throw new BadAnswer(`${layers} layers and top ${topK}, not those of --layers and --top-k`)
  if (second === undefined) return first
  if (second.layers !== layers || second.topK !== topK)
    throw new BadAnswer('prompt_routed_experts of another shape than routed_experts')
  const ids = new Int32Array(first.ids.length + second.ids.length)
  ids.set(first.ids)
  ids.set(second.ids, first.ids.length)
  return { ids, layers, topK }
}

function vllmPart(value: unknown): Ids {
  if (Array.isArray(value)) return nestedIds(value)
  if (typeof value !== 'string') throw new BadAnswer(`routed_experts that are no text (${quoted(value)})`)
  const found = routedExpertsIn(value)
  const ids = 'reject' in found ? undefined : found.values()
  if ('reject' in found || ids === undefined)
    throw new BadAnswer('routed_experts that are not base64 of a .npy file')
  const [rows, layers, topK] = found.shape
  if (found.shape.length !== 3 || !rows || !layers || !topK)
    throw new BadAnswer(`routed_experts of shape [${found.shape.join(', ')}], not [tokens, layers, top_k]`)
  return { ids, layers, topK }
}

/** Lists in lists, as older versions print them. */
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
    throw new BadAnswer('routed_experts that are no lists [tokens][layers][top_k] of whole numbers')
  return { ids: Int32Array.from(flat as number[]), layers, topK }
}

function sglangIds(body: Fields, { layers, topK }: GivenShape): Ids {
  if (layers === undefined || topK === undefined) throw new Error('SGLang’s rows do not tell their shape')
  const value = fields(body['meta_info'])['routed_experts'] ?? fields(body['sglext'])['routed_experts']
  if (value === undefined || value === null)
    throw new BadAnswer(
      'no routed_experts in meta_info or sglext: start the server with --enable-return-routed-experts and ask with "return_routed_experts": true',
    )
  const ids = typeof value === 'string' ? rawExpertsIn(value) : undefined
  if (ids === undefined) throw new BadAnswer('routed_experts that are not base64 of int32')
  if (ids.length === 0 || ids.length % (layers * topK) !== 0)
    throw new BadAnswer(`${ids.length} expert ids, which are no rows of ${layers} layers and top ${topK}`)
  return { ids, layers, topK }
}

/** Experts of the prompt stand for its text where the answer has neither text nor token ids: the same prompt takes the same ones. */
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
