/**
 * From saved answers to traces. The file is read twice: once to find which layers route, which domains there are and which requests are
 * held out, and once to count; what was counted waits in a journal, so that memory is for one answer at a time.
 */
import { existsSync } from 'node:fs'
import { EldrError } from '../errors.ts'
import type { ModelShape } from './captured.ts'
import { countRows, largestId, markRouting } from './count-rows.ts'
import { Domains } from './domains.ts'
import { Journal } from './journal.ts'
import { jsonlLines, openLines, sha256 } from './jsonl-lines.ts'
import { lock } from './lock.ts'
import { BadAnswer, readSavedAnswer, type SavedAnswer, type SavedFormat } from './saved-answer.ts'
import { holdOut } from './split.ts'
import { MOST_STEPS, writeTrace } from './write-traces.ts'

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
  /** Of the rows' layers; `auto` keeps those that route. */
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
  /** Layers of the rows that were kept. */
  readonly moeLayers: readonly number[]
  readonly answers: number
  readonly imported: { readonly calibration: number; readonly evaluation: number }
  readonly skipped: readonly { readonly line: number; readonly why: string }[]
  readonly files: { readonly calibration: string; readonly evaluation?: string }
}

/** What the first reading finds. */
interface Found {
  readonly sha256: string
  readonly model: string
  readonly keys: readonly string[]
  readonly domainOf: readonly number[]
  readonly domains: Domains
  readonly kept: readonly number[]
}

/** Base64 of a byte an id, of 60 layers and top 8: 400,000 tokens. A text in JavaScript ends at twice as much. */
const MOST_LINE_BYTES = 256 << 20

/** What was counted, until the traces are written. */
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

async function survey(plan: ImportPlan, skipped: Map<number, string>): Promise<Found> {
  const hash = sha256()
  const domains = new Domains(plan.input)
  const [keys, domainOf]: [string[], number[]] = [[], []]
  let { model } = plan
  let routes: Uint8Array | undefined
  let shape: Pick<SavedAnswer, 'layers' | 'topK'> | undefined
  for await (const { answer } of answers(plan, skipped, hash, 'read')) {
    const { layers, topK } = answer
    shape ??= { layers, topK }
    routes ??= new Uint8Array(layers)
    markRouting(answer, routes)
    model ??= answer.model
    keys.push(answer.key)
    domainOf.push(domains.indexOf(answer.domain))
  }
  if (shape === undefined || routes === undefined)
    throw new EldrError('ELDR_TRACE_TOO_SMALL', {
      file: plan.input,
      found: 'no answer that can be used',
      expected: 'one at least',
    })
  if (model === undefined)
    throw usage('answers that do not name their model', 'its name', 'Give it with --model.')
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
  found: Found,
  held: Uint8Array,
  skipped: Map<number, string>,
  journal: Journal,
): Promise<ImportResult> {
  const { kept, domains, domainOf } = found
  const { experts, promptStart, halfLife, minCovered, onSkip } = plan
  const sides: [number[], number[]] = [[], []]
  let request = 0
  for await (const { answer, line } of answers(plan, skipped, undefined, 'count')) {
    const most = largestId(answer, kept)
    if (most >= experts)
      throw usage(
        `expert ${most} in line ${line}`,
        `experts below ${experts}, as --experts says`,
        'Give the number of routed experts a layer of the model’s configuration.',
      )
    const captured = countRows(answer, {
      experts,
      layers: kept,
      promptStart,
      halfLife,
      mostSteps: Math.min(plan.steps, MOST_STEPS),
    })
    if (captured.covered < minCovered * captured.tokens) {
      const why = `experts of ${captured.covered} of ${captured.tokens} prompt tokens known`
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
    ...(plan.workload !== undefined && { workload: plan.workload }),
    provenance: { captured_by: `eldr trace import --format ${plan.format}`, answers_sha256: found.sha256 },
  }
  // Hours may have passed since the first look.
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

/** Answers that can be used, of one shape and one model. The others are an error, or skipped where that was asked for. */
async function* answers(
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
      { path: input, mostBytes: MOST_LINE_BYTES },
      hash,
    )) {
      plan.stop?.throwIfAborted()
      plan.onProgress?.(what, ++done)
      if (hash === undefined && skipped.has(line)) continue
      try {
        const answer = readSavedAnswer(bytes.toString('utf8'), format, plan)
        checkRows(answer, promptStart)
        const { layers, topK, model } = answer
        first ??= { layers, topK, ...(model !== undefined && { model }) }
        if (layers !== first.layers || topK !== first.topK)
          throw new BadAnswer(
            `${layers} layers and top ${topK}, where lines before have ${first.layers} and ${first.topK}`,
          )
        if (plan.model === undefined && model !== first.model)
          throw new BadAnswer('another model than in lines before (--model gives one name to all)')
        yield { answer, line }
      } catch (error) {
        const why =
          error instanceof RangeError
            ? 'values nested too deep or too long'
            : error instanceof BadAnswer
              ? error.message
              : undefined
        if (why === undefined) throw error
        if (!skipBad) {
          const todo = 'Change or remove the line, or give --skip-bad to leave such lines out.'
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

/** The last token that was generated is never fed, and so has no row. */
function checkRows(
  { ids, layers, topK, promptTokens, completionTokens }: SavedAnswer,
  promptStart: number,
): void {
  const rows = ids.length / (layers * topK)
  if (completionTokens === undefined) return
  const expected = promptTokens + Math.max(1, completionTokens) - 1 - promptStart
  if (rows === expected) return
  const tokens = `${promptTokens} prompt and ${completionTokens} generated tokens`
  throw new BadAnswer(
    `${rows} rows for ${tokens}, which have ${expected}${promptStart === 0 ? ' (--prompt-start, where the first rows were not asked for)' : ''}`,
  )
}

function keptLayers({ moeLayers }: ImportPlan, layers: number, routes: Uint8Array): number[] {
  const all = Array.from({ length: layers }, (_, layer) => layer)
  if (moeLayers === 'all') return all
  const kept = moeLayers === 'auto' ? all.filter(layer => routes[layer] === 1) : [...moeLayers]
  if (kept.length > 0 && kept.at(-1)! < layers) return kept
  if (moeLayers === 'auto')
    throw usage(
      'no layer in which tokens have different experts',
      'some',
      'Check --layers and --top-k against the model.',
    )
  throw usage(`layer ${kept.at(-1)}`, `layers from 0 to ${layers - 1}`, 'Change --moe-layers.')
}

const usage = (found: string, expected: string, todo: string): EldrError =>
  new EldrError('ELDR_USAGE', { found, expected, todo })
