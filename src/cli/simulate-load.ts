/**
 * The requests of an `eldr bench` run for `eldr simulate --prompts`: each line of the load file is matched by
 * its prompt with the file that the trace was recorded from, whose lines are the requests of the trace.
 */
import { readFile } from 'node:fs/promises'
import { EldrError } from '../errors.ts'
import { noPrompts } from '../load/prompt-file.ts'
import { type PromptLine, readPromptLine, wrongLine } from '../load/prompt-line.ts'
import type { BenchLoad, PromptList } from '../sim/bench-load.ts'
import { withTrace } from '../trace/trace.ts'
import type { SimulateFlags } from './simulate.ts'

/** The flags are checked before. */
export async function benchLoadOf(flags: SimulateFlags): Promise<BenchLoad | undefined> {
  const { prompts, recordedPrompts, duration, warmupSeconds = 0, seed = 0 } = flags
  if (prompts === undefined) return undefined
  const recorded = await readPrompts(recordedPrompts!)
  await withTrace(flags.trace!, async ({ requests, path }) => {
    if (requests === recorded.length) return
    throw new EldrError('ELDR_USAGE', {
      found: `${recorded.length} prompts in ${recordedPrompts} for ${requests} requests in ${path}`,
      expected: 'the file that the trace was recorded from, none of whose prompts was skipped',
      todo: 'Pass that file with --recorded-prompts, or record the trace again.',
    })
  })
  const requestOf = new Map(recorded.map(({ line }, request) => [keyOf(line), request]))
  const lists = await Promise.all(prompts.map(file => promptList(file, requestOf)))
  return { prompts: lists, firstSeed: seed, warmUpSeconds: warmupSeconds, seconds: duration! }
}

interface NumberedLine {
  readonly line: PromptLine
  readonly number: number
}

async function promptList(file: string, requestOf: ReadonlyMap<string, number>): Promise<PromptList> {
  const lines = await readPrompts(file)
  const requests = lines.map(({ line, number }) => {
    const request = requestOf.get(keyOf(line))
    if (request !== undefined) return request
    throw wrongLine(file, number)('a prompt that was not recorded', 'prompts of the --recorded-prompts file')
  })
  const outputTokens = lines.map(({ line, number }) => {
    if (line.maxTokens !== undefined) return line.maxTokens
    throw wrongLine(file, number)('no max_tokens', 'the number of tokens to generate')
  })
  return { file, requests: Int32Array.from(requests), outputTokens: Int32Array.from(outputTokens) }
}

const keyOf = ({ prompt }: PromptLine): string => JSON.stringify(prompt)

async function readPrompts(file: string): Promise<NumberedLine[]> {
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file, cause })
  })
  const lines = text
    .split('\n')
    .flatMap((line, at) =>
      line.trim() === '' ? [] : [{ line: readPromptLine(line, wrongLine(file, at + 1)), number: at + 1 }],
    )
  if (lines.length === 0) throw noPrompts(file)
  return lines
}
