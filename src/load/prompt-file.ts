/** Prompts of a JSONL file, one per line, in order; they start over after the last. */
import { readFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { EldrError } from '../errors.ts'
import type { Api } from './endpoint.ts'
import { PROMPT_LINE, readPromptLine, type WrongLine, wrongLine } from './prompt-line.ts'
import type { PromptRequest, RequestSource } from './request-source.ts'

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

/** `outputTokens`: maximum for lines without max_tokens. */
export function parsePrompts(
  path: string,
  text: string,
  api: Api,
  outputTokens: number | undefined,
): RequestSource {
  const requests: PromptRequest[] = []
  text.split('\n').forEach((line, at) => {
    if (line.trim() !== '') requests.push(parseLine(line, wrongLine(path, at + 1), api, outputTokens))
  })
  if (requests.length === 0) throw noPrompts(path)
  return {
    about: { kind: 'file', file: basename(path), prompts: requests.length },
    request: index => requests[index % requests.length]!,
  }
}

export function noPrompts(path: string): EldrError {
  return new EldrError('ELDR_FILE_WRONG_KIND', {
    file: path,
    found: 'an empty file',
    expected: PROMPT_LINE,
    todo: 'Write one prompt per line.',
  })
}

function parseLine(
  line: string,
  wrong: WrongLine,
  api: Api,
  outputTokens: number | undefined,
): PromptRequest {
  const { prompt, maxTokens = outputTokens } = readPromptLine(line, wrong)
  if (typeof prompt === 'object') {
    const isChat = 'messages' in prompt
    if (!isChat && api === 'chat') throw wrong('token ids', 'text or messages for --api chat')
    if (isChat && api === 'completions') throw wrong('messages', 'a prompt for --api completions')
  }
  return { prompt, maxTokens }
}
