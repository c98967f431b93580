/**
 * Public request traces as workloads: when requests arrived, how long they were, and which prefixes they
 * shared. Two formats are read: Azure 2023 (CSV: TIMESTAMP,ContextTokens,GeneratedTokens) and Mooncake (JSON
 * lines: timestamp in ms, input_length, output_length, hash_ids of 512-token prefix blocks). The files are
 * not shipped.
 */
import { readFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { EldrError } from '../errors.ts'
import { quoted } from '../trace/quoted.ts'

export interface RecordedWorkload {
  /** The file's name, for reports. */
  readonly source: string
  /** [N] ascending, the first is 0. */
  readonly timesUs: Float64Array
  /** [N] at least 1. */
  readonly promptTokens: Int32Array
  /** [N] at least 1: the first comes from prefill. */
  readonly outputTokens: Int32Array
  /**
   * Shared prefixes: the blocks of request i are ids[starts[i]] up to ids[starts[i + 1]]; the same id means
   * the same text up to there. Blocks beyond the prompt are those of the response.
   */
  readonly prefixes?: { readonly blockTokens: number; readonly starts: Int32Array; readonly ids: Int32Array }
  /** [N] conversation that the request is a turn of. */
  readonly conversations?: Int32Array
}

const AZURE_HEADER = 'TIMESTAMP,ContextTokens,GeneratedTokens'
const MOONCAKE_BLOCK = 512

interface Line {
  readonly timeMs: number
  readonly prompt: number
  readonly output: number
  readonly blocks?: readonly number[]
}

/** Longer prompts and outputs are cut to these. */
export interface Caps {
  readonly promptTokens?: number
  readonly outputTokens?: number
}

/** A file to read, as plain data. */
export interface RecordedFile extends Caps {
  readonly file: string
}

export async function readWorkload(path: string, caps: Caps = {}): Promise<RecordedWorkload> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (cause) {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: path, cause })
  }
  return parseWorkload(path, text, caps)
}

/** Longer prompts and outputs are cut to the caps. Times must not decrease. */
export function parseWorkload(file: string, text: string, caps: Caps = {}): RecordedWorkload {
  const rows = text.split('\n').map(row => row.trim())
  const azure = rows[0] === AZURE_HEADER
  const lines: Line[] = []
  rows.forEach((row, at) => {
    if (row === '' || (azure && at === 0)) return
    const line = azure ? azureLine(row) : mooncakeLine(row)
    if (line === undefined || line.timeMs < (lines.at(-1)?.timeMs ?? -Infinity))
      throw wrongLine(file, at + 1, row, azure)
    lines.push(line)
  })
  if (lines.length === 0) throw wrongLine(file, 1, rows[0] ?? '', azure)
  const first = lines[0]!.timeMs
  const lengths = (of: (line: Line) => number, cap = 2 ** 31 - 1) =>
    Int32Array.from(lines, line => Math.max(1, Math.min(cap, of(line))))
  const promptTokens = lengths(line => line.prompt, caps.promptTokens)
  return {
    source: basename(file),
    timesUs: Float64Array.from(lines, line => (line.timeMs - first) * 1000),
    promptTokens,
    outputTokens: lengths(line => line.output, caps.outputTokens),
    prefixes: azure ? undefined : prefixesOf(lines, promptTokens),
  }
}

function azureLine(row: string): Line | undefined {
  // Timestamps have seven fractional digits; Date keeps three, so the rest is added.
  const match = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.\d+)?,(\d{1,9}),(\d{1,9})$/.exec(row)
  if (match === null) return undefined
  const timeMs = Date.parse(`${match[1]}T${match[2]}Z`) + Number(match[3] ?? 0) * 1000
  return Number.isFinite(timeMs) ? { timeMs, prompt: Number(match[4]), output: Number(match[5]) } : undefined
}

function mooncakeLine(row: string): Line | undefined {
  try {
    const {
      timestamp,
      input_length,
      output_length,
      hash_ids = [],
    } = JSON.parse(row) as Record<string, unknown>
    const isLength = (value: unknown): value is number =>
      Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 31
    const fine =
      typeof timestamp === 'number' &&
      Number.isFinite(timestamp) &&
      isLength(input_length) &&
      isLength(output_length)
    if (!fine || !Array.isArray(hash_ids) || !hash_ids.every(isLength)) return undefined
    return { timeMs: timestamp, prompt: input_length, output: output_length, blocks: hash_ids }
  } catch {
    return undefined
  }
}

/** Only whole blocks: a block that is cut by the cap or the prompt's end never equals another. */
function prefixesOf(lines: readonly Line[], promptTokens: Int32Array): RecordedWorkload['prefixes'] {
  const starts = new Int32Array(lines.length + 1)
  const ids: number[] = []
  lines.forEach(({ blocks = [] }, at) => {
    const whole = Math.min(blocks.length, Math.floor(promptTokens[at]! / MOONCAKE_BLOCK))
    for (let b = 0; b < whole; b++) ids.push(blocks[b]!)
    starts[at + 1] = ids.length
  })
  return { blockTokens: MOONCAKE_BLOCK, starts, ids: Int32Array.from(ids) }
}

function wrongLine(file: string, number: number, row: string, azure: boolean): EldrError {
  const expected = azure
    ? `lines of ${AZURE_HEADER} in ascending time`
    : `the header ${AZURE_HEADER}, or JSON lines with timestamp, input_length and output_length in ascending time`
  const todo = 'Take an arrival file in the Azure or the Mooncake format.'
  return new EldrError('ELDR_FILE_WRONG_KIND', {
    file,
    found: `${quoted(row)} in line ${number}`,
    expected,
    todo,
  })
}
