/**
 * What a client asks for: the few fields that decide how a request is served, read from the raw bytes of its
 * body.
 */
import { isUtf8 } from 'node:buffer'
import { editObject } from '../json/edit.ts'
import { type Member, scanList, scanObject } from '../json/scan.ts'

export type Api = 'completions' | 'chat'

export interface ClientRequest {
  readonly api: Api
  readonly body: Buffer
  readonly members: readonly Member[]
  readonly stream: boolean
  /** stream_options.include_usage */
  readonly includeUsage: boolean
  /** Undefined: the model's own limit. */
  readonly maxTokens: number | undefined
  /** Choices per prompt. */
  readonly choices: number
  /** Prompts as ranges of the body; several only in a list of them. Empty for a chat. */
  readonly prompts: readonly { readonly start: number; readonly end: number }[]
  readonly seed: number | undefined
  /** Needs one engine to do all of it: it is neither split nor handed from prefill to decode. */
  readonly whole: boolean
  /** Estimated prompt length: 4 bytes per token; token ids are counted. */
  readonly promptTokens: number
}

/** The reason for a 400, as the client sees it. */
export interface BadRequest {
  readonly wrong: string
  readonly param?: string
}

/** Fields of requests that an engine treats in its own way. */
export interface RequestFields {
  /**
   * Fields that only the gateway may set. They are removed from what clients send: a client could name any
   * host or other blocks.
   */
  readonly reservedFields: readonly string[]
  /** Fields that limit the number of tokens. The first that a request has counts. */
  readonly tokenLimits: Readonly<Record<Api, readonly string[]>>
}

export function readRequest(api: Api, sent: Buffer, fields: RequestFields): ClientRequest | BadRequest {
  // A worker that cannot decode a body may report it as its own failure, and so would the next worker.
  if (!isUtf8(sent)) return { wrong: 'The body is not UTF-8.' }
  const { body, members } = withoutFields(withoutMark(sent), fields.reservedFields)
  if (members === undefined) return { wrong: 'The body is not a JSON object.' }
  const value = (name: string): unknown => {
    const member = last(members, name)
    if (member === undefined || member.end - member.valueStart > MAX_FIELD_BYTES) return undefined
    try {
      return JSON.parse(body.toString('utf8', member.valueStart, member.end)) as unknown
    } catch {
      return undefined // the worker reports what is wrong with it
    }
  }
  const stream = value('stream') ?? false
  if (typeof stream !== 'boolean') return { wrong: 'stream must be true or false.', param: 'stream' }
  const choices = value('n') ?? 1
  if (!Number.isInteger(choices) || (choices as number) < 1)
    return { wrong: 'n must be a whole number above 0.', param: 'n' }
  // The prefill leg always asks for one token, so no worker would report this before decode.
  for (const param of fields.tokenLimits[api]) {
    const limit = value(param)
    if (typeof limit === 'number' && limit < 1) return { wrong: `${param} must be at least 1.`, param }
  }
  const text = last(members, api === 'chat' ? 'messages' : 'prompt')
  if (text === undefined) {
    const param = api === 'chat' ? 'messages' : 'prompt'
    return { wrong: `${param} is missing.`, param }
  }
  const options = value('stream_options')
  const seed = value('seed')
  const prompts = api === 'chat' ? [] : promptsOf(body, text)
  return {
    api,
    body,
    members,
    stream,
    includeUsage: isRecord(options) && options['include_usage'] === true,
    maxTokens: limitOf(api, fields.tokenLimits[api], value),
    choices: choices as number,
    prompts,
    seed: Number.isInteger(seed) ? (seed as number) : undefined,
    whole: needsOneEngine(value),
    promptTokens: tokensOf(body, text, prompts),
  }
}

/** Some clients start with a byte order mark, which JSON does not allow. */
function withoutMark(body: Buffer): Buffer {
  return body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? body.subarray(3) : body
}

/** The body without some of its top-level fields; members are undefined if it is not a JSON object. */
export function withoutFields(
  body: Buffer,
  names: readonly string[],
): { readonly body: Buffer; readonly members: readonly Member[] | undefined } {
  const members = scanObject(body)
  if (members === undefined || !names.some(name => last(members, name) !== undefined))
    return { body, members }
  const rest = editObject(body, members, Object.fromEntries(names.map(name => [name, undefined])))
  return { body: rest, members: scanObject(rest) }
}

/** The fields read here are small; a larger value cannot be valid. */
const MAX_FIELD_BYTES = 4_096

/** The last of several members with one name, as Python's parser does it. */
export function last(members: readonly Member[], name: string): Member | undefined {
  for (let at = members.length - 1; at >= 0; at--) if (members[at]!.name === name) return members[at]
  return undefined
}

/** Completions have a default limit of 16. */
function limitOf(api: Api, names: readonly string[], value: (name: string) => unknown): number | undefined {
  let given: unknown
  for (const name of names) given ??= value(name)
  if (Number.isInteger(given)) return given as number
  return api === 'completions' && given === undefined ? 16 : undefined
}

/** Beams share steps, and log-probabilities of the prompt exist only where it was prefilled. */
function needsOneEngine(value: (name: string) => unknown): boolean {
  const best = value('best_of')
  if (value('use_beam_search') === true || (typeof best === 'number' && best > 1)) return true
  const prompt = value('prompt_logprobs')
  return (
    typeof prompt === 'number' ||
    (value('echo') === true && value('logprobs') !== undefined && value('logprobs') !== null)
  )
}

/** A string or a list of ids is one prompt; a list of strings or of lists is several. */
function promptsOf(body: Buffer, { valueStart, end }: Member): { start: number; end: number }[] {
  const elements = body[valueStart] === 0x5b ? scanList(body, valueStart, end, 2) : undefined
  const first = elements?.[0] && body[elements[0].start]
  if (first !== 0x22 && first !== 0x5b) return [{ start: valueStart, end }]
  return scanList(body, valueStart, end) ?? [{ start: valueStart, end }]
}

function tokensOf(body: Buffer, text: Member, prompts: readonly { start: number; end: number }[]): number {
  let tokens = 0
  for (const { start, end } of prompts.length === 0 ? [{ start: text.valueStart, end: text.end }] : prompts) {
    const ids = prompts.length > 0 && body[start] === 0x5b
    tokens += ids ? commas(body, start, end) + 1 : Math.ceil((end - start) / 4)
  }
  return tokens
}

function commas(body: Buffer, start: number, end: number): number {
  let count = 0
  for (let at = body.indexOf(0x2c, start); at >= 0 && at < end; at = body.indexOf(0x2c, at + 1)) count++
  return count
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
}
