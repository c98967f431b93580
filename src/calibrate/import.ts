/**
 * Turns saved responses into traces. The file is read twice: first to find the layers that route, the domains
 * and the held-out requests, then to count. Counts go to a journal, so that only one response is in memory at
 * a time.
 */
import { existsSync } from 'node:fs'
import { EldrError } from '../errors.ts'
import type { ModelShape } from './captured.ts'
import { countRows, largestId, markRouting } from './count-rows.ts'
import { Domains } from './domains.ts'
import { Journal } from './journal.ts'
import { jsonlLines, openLines, sha256 } from './jsonl-lines.ts'
import { lock } from './lock.ts'
import {
  UnusableResponse,
  readSavedResponse,
  type SavedResponse,
  type SavedFormat,
} from './saved-response.ts'
import { holdOut } from './split.ts'
import { MAX_STEPS, writeTrace } from './write-traces.ts'

export interface ImportPlan {
  readonly format: SavedFormat
  readonly input: string
  readonly out: string
  readonly holdoutOut?: string
  readonly holdout: number
  readonly seed: number
  readonly experts: number
  readonly layers?: number
  readonly topK?: number
  /** Layers of the rows to keep; `auto` keeps those that route. */
  readonly moeLayers: 'auto' | 'all' | readonly number[]
  readonly model?: string
  readonly workload?: string
  readonly promptStart: number
  readonly halfLife: number
  readonly minCovered: number
  readonly steps: number
  readonly skipBad: boolean
  readonly force: boolean
  readonly stop?: AbortSignal
  readonly onProgress?: (what: string, done: number) => void
  readonly onSkip?: (line: number, why: string) => void
}

export interface ImportResult extends Partial<ModelShape> {
  readonly model: string
  /** Kept layers of the rows. */
  readonly moeLayers: readonly number[]
  readonly answers: number
  readonly imported: { readonly calibration: number; readonly evaluation: number }
  readonly skipped: readonly { readonly line: number; readonly why: string }[]
  readonly files: { readonly calibration: string; readonly evaluation?: string }
}

/** Result of the first pass. */
interface Survey {
  readonly sha256: string
  readonly model: string
  readonly keys: readonly string[]
  readonly domainOf: readonly number[]
  readonly domains: Domains
  readonly kept: readonly number[]
}

/**
 * Enough for 400,000 tokens of 60 layers and top 8 at one byte per id in base64; strings in JavaScript may be
 * twice as long.
 */
const MAX_LINE_BYTES = 256 << 20

/** Temporary file for counts until the traces are written. */
export const spoolOf = (out: string): string => `${out}.import`

export async function importTrace(plan: ImportPlan): Promise<ImportResult> {
  checkFree(plan)
  const skipped = new Map<number, string>()
  const found = await survey(plan, skipped)
  const held = holdOut({ keys: found.keys, domains: found.domainOf }, plan.holdout, plan.seed)
  const spool = spoolOf(plan.out)
  const unlock = lock(spool)
  try {
    const journal = await Journal.begin(spool, { input_sha256: found.sha256 })
    try {
      return await count(plan, found, held, skipped, journal)
    } finally {
      await journal.remove()
    }
  } finally {
    unlock()
  }
}

async function survey(plan: ImportPlan, skipped: Map<number, string>): Promise<Survey> {
  const hash = sha256()
  const domains = new Domains(plan.input)
  const [keys, domainOf]: [string[], number[]] = [[], []]
  let { model } = plan
  let routes: Uint8Array | undefined
  let shape: Pick<SavedResponse, 'layers' | 'topK'> | undefined
  for await (const { response } of responses(plan, skipped, hash, 'read')) {
    const { layers, topK } = response
    shape ??= { layers, topK }
    routes ??= new Uint8Array(layers)
    markRouting(response, routes)
    model ??= response.model
    keys.push(response.key)
    domainOf.push(domains.indexOf(response.domain))
  }
  if (shape === undefined || routes === undefined)
    throw new EldrError('ELDR_TRACE_TOO_SMALL', {
      file: plan.input,
      found: 'no usable response',
      expected: 'at least one',
    })
  if (model === undefined)
    throw usage('responses without a model name', 'a model name', 'Pass it with --model.')
  return {
    sha256: hash.digest('hex'),
    model,
    keys,
    domainOf,
    domains,
    kept: keptLayers(plan, shape.layers, routes),
  }
}

async function count(
  plan: ImportPlan,
  found: Survey,
  held: Uint8Array,
  skipped: Map<number, string>,
  journal: Journal,
): Promise<ImportResult> {
  const { kept, domains, domainOf } = found
  const { experts, promptStart, halfLife, minCovered, onSkip } = plan
  const sides: [number[], number[]] = [[], []]
  let request = 0
  for await (const { response, line } of responses(plan, skipped, undefined, 'count')) {
    const largest = largestId(response, kept)
    if (largest >= experts)
      throw usage(
        `expert ${largest} in line ${line}`,
        `experts below ${experts}, from --experts`,
        'Pass the number of routed experts per layer from the model’s configuration.',
      )
    const captured = countRows(response, {
      experts,
      layers: kept,
      promptStart,
      halfLife,
      maxSteps: Math.min(plan.steps, MAX_STEPS),
    })
    if (captured.covered < minCovered * captured.tokens) {
      const why = `experts known for ${captured.covered} of ${captured.tokens} prompt tokens`
      skipped.set(line, why)
      onSkip?.(line, why)
    } else {
      await journal.add(request, captured)
      sides[held[request] === 1 ? 1 : 0].push(request)
    }
    request++
  }
  const about = {
    model: found.model,
    domains: domains.names(),
    domainOf: (one: number) => domains.final(domainOf[one]!),
    workload: plan.workload,
    provenance: { captured_by: `eldr trace import --format ${plan.format}`, answers_sha256: found.sha256 },
  }
  // Check again, since hours may have passed.
  checkFree(plan)
  if (plan.holdoutOut !== undefined) await writeTrace(plan.holdoutOut, 'evaluation', sides[1], journal, about)
  await writeTrace(plan.out, 'calibration', sides[0], journal, about)
  return {
    model: found.model,
    ...journal.shape,
    moeLayers: kept,
    answers: sides[0].length + sides[1].length + skipped.size,
    imported: { calibration: sides[0].length, evaluation: sides[1].length },
    skipped: [...skipped].map(([line, why]) => ({ line, why })).sort((a, b) => a.line - b.line),
    files: { calibration: plan.out, ...(plan.holdoutOut !== undefined && { evaluation: plan.holdoutOut }) },
  }
}

/** Usable responses of one shape and one model. Others are an error, or skipped with --skip-bad. */
async function* responses(
  plan: ImportPlan,
  skipped: Map<number, string>,
  hash: ReturnType<typeof sha256> | undefined,
  what: string,
) {
  const { input, format, promptStart, skipBad } = plan
  const handle = await openLines(input)
  let first: { readonly layers: number; readonly topK: number; readonly model?: string } | undefined
  let done = 0
  try {
    for await (const { number: line, bytes } of jsonlLines(
      handle,
      { path: input, maxBytes: MAX_LINE_BYTES },
      hash,
    )) {
      plan.stop?.throwIfAborted()
      plan.onProgress?.(what, ++done)
      if (hash === undefined && skipped.has(line)) continue
      try {
        const response = readSavedResponse(bytes.toString('utf8'), format, plan)
        checkRows(response, promptStart)
        const { layers, topK, model } = response
        first ??= { layers, topK, model }
        if (layers !== first.layers || topK !== first.topK)
          throw new UnusableResponse(
            `${layers} layers and top ${topK}, but earlier lines have ${first.layers} and ${first.topK}`,
          )
        if (plan.model === undefined && model !== first.model)
          throw new UnusableResponse(
            'a different model than in earlier lines (--model sets one name for all)',
          )
        yield { response, line }
      } catch (error) {
        const why =
          error instanceof RangeError
            ? 'values nested too deeply or too long'
            : error instanceof UnusableResponse
              ? error.message
              : undefined
        if (why === undefined) throw error
        if (!skipBad) {
          const todo = 'Change or remove the line, or add --skip-bad to skip such lines.'
          throw new EldrError('ELDR_FILE_WRONG_KIND', { file: input, found: `${why} in line ${line}`, todo })
        }
        skipped.set(line, why)
        plan.onSkip?.(line, why)
      }
    }
  } finally {
    await handle.close()
  }
}

function checkFree({ out, holdoutOut, force }: ImportPlan): void {
  const taken = [out, holdoutOut].find(file => file !== undefined && existsSync(file))
  if (taken !== undefined && !force) throw new EldrError('ELDR_FILE_EXISTS', { file: taken })
}

/** The last generated token is never fed back and has no row. */
function checkRows(
  { ids, layers, topK, promptTokens, completionTokens }: SavedResponse,
  promptStart: number,
): void {
  const rows = ids.length / (layers * topK)
  if (completionTokens === undefined) return
  const expected = promptTokens + Math.max(1, completionTokens) - 1 - promptStart
  if (rows === expected) return
  const tokens = `${promptTokens} prompt and ${completionTokens} generated tokens`
  throw new UnusableResponse(
    `${rows} rows for ${tokens}, which need ${expected}${promptStart === 0 ? ' (use --prompt-start if the first rows were not requested)' : ''}`,
  )
}

function keptLayers({ moeLayers }: ImportPlan, layers: number, routes: Uint8Array): number[] {
  const all = Array.from({ length: layers }, (_, layer) => layer)
  if (moeLayers === 'all') return all
  const kept = moeLayers === 'auto' ? all.filter(layer => routes[layer] === 1) : [...moeLayers]
  if (kept.length > 0 && kept.at(-1)! < layers) return kept
  if (moeLayers === 'auto')
    throw usage(
      'no layer in which a token has different experts',
      'at least one',
      'Check --layers and --top-k against the model.',
    )
  throw usage(`layer ${kept.at(-1)}`, `layers from 0 to ${layers - 1}`, 'Change --moe-layers.')
}

const usage = (found: string, expected: string, todo: string): EldrError =>
  new EldrError('ELDR_USAGE', { found, expected, todo })
