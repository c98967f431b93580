/** Prompts of a JSONL file, a request a line, in the file's order and from the start again after the last. */
import { readFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { EldrError } from '../errors.ts'
import type { Api } from './endpoint.ts'
import { PROMPT_LINE, readPromptLine, wrongLine } from './prompt-line.ts'
import type { Asked, RequestSource } from './request-source.ts'

export async function promptFile(
  path: string,
  api: Api,
  outputTokens: number | undefined,
): Promise<RequestSource> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: path, cause })
  })
  return parsePrompts(path, text, api, outputTokens)
}

/** `outputTokens`: of lines that do not say. */
export function parsePrompts(
  path: string,
  text: string,
  api: Api,
  outputTokens: number | undefined,
): RequestSource {
  const asked: Asked[] = []
  text.split('\n').forEach((line, at) => {
    if (line.trim() !== '') asked.push(askedIn(path, line, at + 1, api, outputTokens))
  })
  if (asked.length === 0) throw noPrompts(path)
  return {
    about: { kind: 'file', file: basename(path), prompts: asked.length },
    ask: index => asked[index % asked.length]!,
  }
}

export function noPrompts(path: string): EldrError {
  return new EldrError('ELDR_FILE_WRONG_KIND', {
    file: path,
    found: 'no line',
    expected: PROMPT_LINE,
    todo: 'Write a prompt a line.',
  })
}

function askedIn(
  path: string,
  line: string,
  number: number,
  api: Api,
  outputTokens: number | undefined,
): Asked {
  const wrong = wrongLine(path, number)
  const { prompt, maxTokens = outputTokens } = readPromptLine(line, wrong)
  if (typeof prompt === 'object') {
    const isChat = 'messages' in prompt
    if (!isChat && api === 'chat') throw wrong('token ids', 'text or messages for --api chat')
    if (isChat && api === 'completions') throw wrong('messages', 'a prompt for --api completions')
  }
  return { prompt, ...(maxTokens !== undefined && { maxTokens }) }
}
