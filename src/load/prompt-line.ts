/** Parses one line of a prompt file, for `eldr bench` and `eldr calibrate`. */
import { EldrError } from '../errors.ts'
import { quoted } from '../trace/quoted.ts'
import type { Message, Prompt } from './request-source.ts'

export const PROMPT_LINE =
  '{"prompt": text or token ids} or {"messages": [{"role", "content"}, …]}, optionally with "max_tokens" and "domain"'

export interface PromptLine {
  readonly prompt: Prompt
  readonly maxTokens?: number
  /** Kind of request, as named by the author of the file. */
  readonly domain?: string
}

/** `id` is for the author of the file and is ignored here. */
const KEYS: ReadonlySet<string> = new Set(['prompt', 'messages', 'max_tokens', 'domain', 'id'])

/** Creates the error for a line from what was found and what was expected. */
export type WrongLine = (found: string, expected?: string) => EldrError

export function wrongLine(path: string, number: number): WrongLine {
  return (found, expected = PROMPT_LINE) =>
    new EldrError('ELDR_FILE_WRONG_KIND', {
      file: path,
      found: `${found} in line ${number}`,
      expected,
      todo: 'Change the line.',
    })
}

export function readPromptLine(line: string, wrong: WrongLine): PromptLine {
  let value: { prompt?: unknown; messages?: unknown; max_tokens?: unknown; domain?: unknown }
  try {
    value = Object(JSON.parse(line)) as typeof value
  } catch {
    throw wrong(quoted(line))
  }
  const { prompt, messages, max_tokens: maxTokens, domain } = value
  const unknown = Object.keys(value).find(key => !KEYS.has(key))
  if (unknown !== undefined) throw wrong(`the key ${quoted(unknown)}`)
  if (maxTokens !== undefined && !(Number.isInteger(maxTokens) && (maxTokens as number) >= 1))
    throw wrong('max_tokens that is not a whole number of at least 1')
  if (domain !== undefined && (typeof domain !== 'string' || domain.trim() === '' || domain.includes(',')))
    throw wrong(`the domain ${quoted(domain)}`, 'a name without commas')
  const rest = { maxTokens: maxTokens as number | undefined, domain: domain?.trim() }
  if (prompt !== undefined && messages !== undefined) throw wrong('prompt and messages', 'one of them')
  if (typeof prompt === 'string' && prompt !== '') return { prompt, ...rest }
  if (isIds(prompt)) return { prompt, ...rest }
  if (!areMessages(messages)) throw wrong(quoted(line))
  return { prompt: { messages }, ...rest }
}

const isIds = (value: unknown): value is number[] =>
  Array.isArray(value) && value.length > 0 && value.every(id => Number.isInteger(id) && (id as number) >= 0)

const areMessages = (value: unknown): value is Message[] =>
  Array.isArray(value) &&
  value.length > 0 &&
  value.every(one => typeof (one as Partial<Message> | null)?.role === 'string')
