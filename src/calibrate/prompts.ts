/**
 * Prompts of a calibration. Every line is read and checked before the first is sent; memory keeps only its
 * position in the file.
 */
import type { FileHandle } from 'node:fs/promises'
import { EldrError } from '../errors.ts'
import type { Api } from '../load/endpoint.ts'
import { noPrompts } from '../load/prompt-file.ts'
import { type PromptLine, readPromptLine, wrongLine } from '../load/prompt-line.ts'
import type { Prompt } from '../load/request-source.ts'
import { Domains } from './domains.ts'
import { jsonlLines, openLines, sha256 } from './jsonl-lines.ts'

export interface Prompts {
  /** Hash of the whole file. */
  readonly sha256: string
  /** Line number of each request. */
  readonly lines: readonly number[]
  readonly keys: readonly string[]
  /** Results of `Domains.indexOf`. */
  readonly domainOf: readonly number[]
  readonly domains: Domains
  /** Reads a prompt from the file. */
  read(request: number): Promise<Prompt>
  close(): Promise<void>
}

/** Far above the context length of any model. */
const MAX_LINE_BYTES = 16 << 20

/** API for a prompt; `auto`: chat for messages, completions for the rest. */
export type ApiChoice = Api | 'auto'

export const apiOf = (prompt: Prompt, choice: ApiChoice): Api =>
  choice !== 'auto' ? choice : typeof prompt === 'object' && 'messages' in prompt ? 'chat' : 'completions'

/** The first `limit` prompts of a file. */
export async function openPrompts(path: string, api: ApiChoice, limit = Infinity): Promise<Prompts> {
  const handle = await openLines(path)
  try {
    return await scan(path, handle, api, limit)
  } catch (error) {
    await handle.close()
    if (error instanceof EldrError) throw error
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: path, cause: error })
  }
}

async function scan(path: string, handle: FileHandle, api: ApiChoice, limit: number): Promise<Prompts> {
  const hash = sha256()
  const domains = new Domains(path)
  const [lines, places, lengths, keys, domainOf]: [number[], number[], number[], string[], number[]] = [
    [],
    [],
    [],
    [],
    [],
  ]
  for await (const { number, at, bytes } of jsonlLines(handle, { path, maxBytes: MAX_LINE_BYTES }, hash)) {
    // The hash needs the whole file; lines beyond the limit are not checked.
    if (lines.length >= limit) continue
    const line = lineOf(path, number, bytes, api)
    lines.push(number)
    places.push(at)
    lengths.push(bytes.length)
    keys.push(keyIn(path, number, line.prompt))
    domainOf.push(domains.indexOf(line.domain))
  }
  if (lines.length === 0) throw noPrompts(path)
  return {
    sha256: hash.digest('hex'),
    lines,
    keys,
    domainOf,
    domains,
    async read(request) {
      const bytes = Buffer.alloc(lengths[request]!)
      await handle.read(bytes, 0, bytes.length, places[request]!).catch((cause: unknown) => {
        throw new EldrError('ELDR_FILE_UNREADABLE', { file: path, cause })
      })
      const { prompt } = lineOf(path, lines[request]!, bytes, api)
      if (keyOf(prompt) === keys[request]) return prompt
      const found = `line ${lines[request]} changed during the run`
      throw new EldrError('ELDR_FILE_UNREADABLE', {
        file: path,
        found,
        todo: 'Do not change the file while the command runs.',
      })
    },
    close: () => handle.close(),
  }
}

function lineOf(path: string, number: number, bytes: Buffer, api: ApiChoice): PromptLine {
  const wrong = wrongLine(path, number)
  const line = readPromptLine(bytes.toString('utf8'), wrong)
  if (typeof line.prompt === 'object') {
    const isChat = 'messages' in line.prompt
    if (isChat && api === 'completions') throw wrong('messages', 'a prompt for --api completions')
    if (!isChat && api === 'chat') throw wrong('token ids', 'text or messages for --api chat')
  }
  return line
}

/** JSON.parse accepts values that are nested too deeply for JSON.stringify. */
function keyIn(path: string, number: number, prompt: Prompt): string {
  try {
    return keyOf(prompt)
  } catch (error) {
    if (error instanceof RangeError) throw wrongLine(path, number)('values nested too deeply')
    throw error
  }
}

/** A hash of the prompt, which reveals nothing of its text. */
function keyOf(prompt: Prompt): string {
  return sha256().update(JSON.stringify(prompt)).digest('hex').slice(0, 32)
}
