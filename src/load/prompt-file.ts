/** Prompts of a JSONL file, a request a line, in the file's order and from the start again after the last. */
import { readFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { EldrError } from '../errors.ts'
import { quoted } from '../trace/quoted.ts'
import type { Api } from './endpoint.ts'
import type { Asked, Message, RequestSource } from './request-source.ts'

const EXPECTED = '{"prompt": text or token ids} or {"messages": [{"role", "content"}, …]}, with "max_tokens" or without'
/** `id` and `domain` are labels for those who choose and compare prompts; they are not sent. */
const KEYS: ReadonlySet<string> = new Set(['prompt', 'messages', 'max_tokens', 'id', 'domain'])

export async function promptFile(path: string, api: Api, outputTokens: number | undefined): Promise<RequestSource> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: path, cause })
  })
  return parsePrompts(path, text, api, outputTokens)
}

/** `outputTokens`: of lines that do not say. */
export function parsePrompts(path: string, text: string, api: Api, outputTokens: number | undefined): RequestSource {
  const asked: Asked[] = []
  text.split('\n').forEach((line, at) => {
    if (line.trim() !== '') asked.push(askedIn(path, line, at + 1, api, outputTokens))
  })
  if (asked.length === 0) throw new EldrError('ELDR_FILE_WRONG_KIND', { file: path, found: 'no line', expected: EXPECTED, todo: 'Write a prompt a line.' }) // prettier-ignore
  return { about: { kind: 'file', file: basename(path), prompts: asked.length }, ask: index => asked[index % asked.length]! }
}

function askedIn(path: string, line: string, number: number, api: Api, outputTokens: number | undefined): Asked {
  const wrong = (found: string, expected = EXPECTED) =>
    new EldrError('ELDR_FILE_WRONG_KIND', { file: path, found: `${found} in line ${number}`, expected, todo: 'Change the line.' })
  let value: { prompt?: unknown; messages?: unknown; max_tokens?: unknown }
  try {
    value = Object(JSON.parse(line)) as typeof value
  } catch {
    throw wrong(quoted(line))
  }
  const { prompt, messages, max_tokens: maxTokens = outputTokens } = value
  const unknown = Object.keys(value).find(key => !KEYS.has(key))
  if (unknown !== undefined) throw wrong(`the key ${quoted(unknown)}`)
  if (maxTokens !== undefined && !(Number.isInteger(maxTokens) && (maxTokens as number) >= 1)) throw wrong('max_tokens that is no whole number from 1') // prettier-ignore
  const limit = maxTokens === undefined ? {} : { maxTokens: maxTokens as number }
  if (prompt !== undefined && messages !== undefined) throw wrong('prompt and messages', 'one of them')
  if (typeof prompt === 'string' && prompt !== '') return { prompt, ...limit }
  if (isIds(prompt)) {
    if (api === 'chat') throw wrong('token ids', 'text or messages for --api chat')
    return { prompt, ...limit }
  }
  if (!areMessages(messages)) throw wrong(quoted(line))
  if (api === 'completions') throw wrong('messages', 'a prompt for --api completions')
  return { prompt: { messages }, ...limit }
}

const isIds = (value: unknown): value is number[] =>
  Array.isArray(value) && value.length > 0 && value.every(id => Number.isInteger(id) && (id as number) >= 0)

const areMessages = (value: unknown): value is Message[] =>
  Array.isArray(value) && value.length > 0 && value.every(one => typeof (one as Partial<Message> | null)?.role === 'string')
