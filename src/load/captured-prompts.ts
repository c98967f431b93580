/**
 * Sends the prompts of a trace again as they were sent during capture: a deterministic model then uses the
 * experts that the trace recorded.
 */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { EldrError } from '../errors.ts'
import { withSafetensors } from '../trace/safetensors-file.ts'
import type { TraceRows } from './synthetic-sources.ts'
import { parsePrompts } from './prompt-file.ts'
import { type RequestSource, seedOf } from './request-source.ts'

/** Makes a source whose requests follow the given rows of a trace, and start over after the last. */
export type SourceOfRows = (rows: Int32Array) => RequestSource

/** As `eldr calibrate` stores them in a trace. */
interface CaptureOptions {
  readonly temperature: number
  readonly seed: number
  readonly ignore_eos: boolean
}

export async function capturedPrompts(
  prompts: string,
  { file, decodeSteps }: TraceRows,
): Promise<SourceOfRows> {
  const bytes = await readFile(prompts).catch((cause: unknown) => {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: prompts, cause })
  })
  const { temperature, seed, ignore_eos: ignoreEos } = await optionsOf(file, prompts, bytes)
  const lines = parsePrompts(prompts, bytes.toString('utf8'), 'completions', undefined)
  if (lines.about['prompts'] !== decodeSteps.length)
    throw mismatch(
      prompts,
      file,
      `${String(lines.about['prompts'])} prompts and ${decodeSteps.length} requests`,
    )
  const requests = Array.from(decodeSteps, (steps, row) => ({
    prompt: lines.request(row).prompt,
    maxTokens: steps + 1,
    fields: { temperature, ...(temperature > 0 && { seed: seedOf(seed, row) }), ignore_eos: ignoreEos },
  }))
  return rows => ({
    about: { kind: 'file', file: basename(prompts), prompts: requests.length, trace: basename(file) },
    request: index => requests[rows[index % rows.length]!]!,
  })
}

async function optionsOf(trace: string, prompts: string, bytes: Buffer): Promise<CaptureOptions> {
  const metadata = await withSafetensors(trace, async opened => opened.metadata)
  const sha256 = createHash('sha256').update(bytes).digest('hex')
  if (metadata['prompts_sha256'] !== sha256)
    throw mismatch(
      prompts,
      trace,
      `prompts with sha256 ${sha256.slice(0, 12)}, a trace of prompts with ${String(metadata['prompts_sha256'] ?? 'none').slice(0, 12)}`,
    )
  try {
    const options = JSON.parse(metadata['capture_options'] ?? '') as Partial<CaptureOptions>
    if (typeof options.temperature === 'number' && typeof options.seed === 'number')
      return options as CaptureOptions
  } catch {
    // Metadata that is not JSON counts as missing; the error below reports it.
  }
  throw mismatch(prompts, trace, 'a trace without the options of its capture')
}

function mismatch(prompts: string, trace: string, found: string): EldrError {
  return new EldrError('ELDR_TRACE_OF_OTHER_PROMPTS', {
    file: prompts,
    found,
    expected: `the prompts from which ${basename(trace)} was captured`,
  })
}
