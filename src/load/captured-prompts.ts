/**
 * The prompts that a trace was captured of, asked again as they were then: a model that gives the same text every time then fires the
 * experts that the trace has.
 */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { EldrError } from '../errors.ts'
import { withSafetensors } from '../trace/safetensors-file.ts'
import type { TraceRows } from './made-up-sources.ts'
import { parsePrompts } from './prompt-file.ts'
import { type RequestSource, seedOf } from './request-source.ts'

/** Requests that follow rows of a trace, by their numbers, from the start again after the last. */
export type SourceOfRows = (rows: Int32Array) => RequestSource

/** As `eldr calibrate` notes them in a trace. */
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
    throw unlike(
      prompts,
      file,
      `${String(lines.about['prompts'])} prompts and ${decodeSteps.length} requests`,
    )
  const asked = Array.from(decodeSteps, (steps, row) => ({
    prompt: lines.ask(row).prompt,
    maxTokens: steps + 1,
    fields: { temperature, ...(temperature > 0 && { seed: seedOf(seed, row) }), ignore_eos: ignoreEos },
  }))
  return rows => ({
    about: { kind: 'file', file: basename(prompts), prompts: asked.length, trace: basename(file) },
    ask: index => asked[rows[index % rows.length]!]!,
  })
}

async function optionsOf(trace: string, prompts: string, bytes: Buffer): Promise<CaptureOptions> {
  const metadata = await withSafetensors(trace, async opened => opened.metadata)
  const sha256 = createHash('sha256').update(bytes).digest('hex')
  if (metadata['prompts_sha256'] !== sha256)
    throw unlike(
      prompts,
      trace,
      `prompts of sha256 ${sha256.slice(0, 12)}, a trace of ${String(metadata['prompts_sha256'] ?? 'none').slice(0, 12)}`,
    )
  try {
    const options = JSON.parse(metadata['capture_options'] ?? '') as Partial<CaptureOptions>
    if (typeof options.temperature === 'number' && typeof options.seed === 'number')
      return options as CaptureOptions
  } catch {
    // Said below: notes that are no JSON are no notes.
  }
  throw unlike(prompts, trace, 'a trace that does not say how they were asked')
}

function unlike(prompts: string, trace: string, found: string): EldrError {
  return new EldrError('ELDR_TRACE_OF_OTHER_PROMPTS', {
    file: prompts,
    found,
    expected: `the prompts that ${basename(trace)} was captured of`,
  })
}
