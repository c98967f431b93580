/** Prompts to calibrate with: every line is read and checked before the first is asked, then kept as its place in the file. */
import type { FileHandle } from 'node:fs/promises'
import { EldrError } from '../errors.ts'
import type { Api } from '../load/endpoint.ts'
import { noPrompts } from '../load/prompt-file.ts'
import { type PromptLine, readPromptLine, wrongLine } from '../load/prompt-line.ts'
import type { Prompt } from '../load/request-source.ts'
import { Domains } from './domains.ts'
import { jsonlLines, openLines, sha256 } from './jsonl-lines.ts'

export interface Prompts {
  /** Of the whole file. */
  readonly sha256: string
  /** One a request. */
  readonly lines: readonly number[]
  readonly keys: readonly string[]
  /** As `Domains` gives them. */
  readonly domainOf: readonly number[]
  readonly domains: Domains
  /** Reads a prompt again. */
  read(request: number): Promise<Prompt>
  close(): Promise<void>
}

/** Far above what any model reads at once. */
const MOST_LINE_BYTES = 16 << 20

/** Which API a prompt is asked by; `auto`: messages by chat, the rest by completions. */
export type ApiChoice = Api | 'auto'

export const apiOf = (prompt: Prompt, choice: ApiChoice): Api =>
  choice !== 'auto' ? choice : typeof prompt === 'object' && 'messages' in prompt ? 'chat' : 'completions'

/** The first `limit` prompts of a file. */
export async function openPrompts(path: string, api: ApiChoice, limit = Infinity): Promise<Prompts> {
  const handle = await openLines(path)
  try {
    return await scanned(path, handle, api, limit)
  } catch (error) {
    await handle.close()
    if (error instanceof EldrError) throw error
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: path, cause: error })
  }
}

async function scanned(path: string, handle: FileHandle, api: ApiChoice, limit: number): Promise<Prompts> {
  const hash = sha256()
  const domains = new Domains(path)
  const [lines, places, lengths, keys, domainOf]: [number[], number[], number[], string[], number[]] = [
    [],
    [],
    [],
    [],
    [],
  ]
  for await (const { number, at, bytes } of jsonlLines(handle, { path, mostBytes: MOST_LINE_BYTES }, hash)) {
    // Read to the end for the hash; what is beyond the limit need not be right.
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
      const found = `another prompt in line ${lines[request]} than at the start`
      throw new EldrError('ELDR_FILE_UNREADABLE', {
        file: path,
        found,
        todo: 'Leave the file as it is while it is read.',
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

/** A value nested so deep that it cannot be written can be parsed all the same. */
function keyIn(path: string, number: number, prompt: Prompt): string {
  try {
    return keyOf(prompt)
  } catch (error) {
    if (error instanceof RangeError) throw wrongLine(path, number)('values nested too deep')
    throw error
  }
}

/** The same for the same prompt, and nothing of its text. */
function keyOf(prompt: Prompt): string {
  return sha256().update(JSON.stringify(prompt)).digest('hex').slice(0, 32)
}
