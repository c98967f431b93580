/** Runs a calibration, from a prompt file to traces; docs/guides/calibration.md describes it for users. */
import { existsSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { EldrError } from '../errors.ts'
import { firstModel } from '../load/endpoint.ts'
import { SKIPS, type ModelShape, type Skip } from './captured.ts'
import { collect, type CollectSettings, retryPauseMs } from './collect.ts'
import { Journal } from './journal.ts'
import { lock } from './lock.ts'
import { openPrompts, type Prompts } from './prompts.ts'
import { holdOut } from './split.ts'
import { type Split, writeTrace } from './write-traces.ts'

export interface CalibrationPlan extends Omit<CollectSettings, 'model'> {
  /** Default: the first model that the server lists. */
  readonly model?: string
  readonly prompts: string
  readonly out: string
  /**
   * Kind of trace in `out`: an evaluation has the experts of every step, for prompts that were already held
   * out.
   */
  readonly split: Split
  /** Undefined without a hold-out. */
  readonly holdoutOut?: string
  readonly holdout: number
  /** Use only this many prompts. */
  readonly limit?: number
  readonly workload?: string
  readonly force: boolean
}

export interface CalibrationResult extends Partial<ModelShape> {
  readonly model: string
  readonly prompts: number
  /** Prompts taken from the journal of an interrupted run. */
  readonly resumed: number
  readonly captured: { readonly calibration: number; readonly evaluation: number }
  readonly skipped: readonly { readonly reason: Skip; readonly lines: readonly number[] }[]
  /** Requests that ended before the requested number of steps. */
  readonly shorter: number
  readonly files: { readonly calibration?: string; readonly evaluation?: string }
}

export const journalOf = (out: string): string => `${out}.journal`

export async function calibrate(plan: CalibrationPlan): Promise<CalibrationResult> {
  const replaceable = checkFree(plan)
  const prompts = await openPrompts(plan.prompts, plan.api, plan.limit)
  try {
    const held = holdOut({ keys: prompts.keys, domains: prompts.domainOf }, plan.holdout, plan.seed)
    checkSides(plan, held)
    const model = plan.model ?? (await modelOf(plan, prompts.lines.length))
    const unlock = lock(journalOf(plan.out))
    try {
      return await withJournal({ ...plan, model }, prompts, held, replaceable)
    } finally {
      unlock()
    }
  } finally {
    await prompts.close()
  }
}

async function withJournal(
  plan: CalibrationPlan & { readonly model: string },
  prompts: Prompts,
  held: Uint8Array,
  replaceable: readonly string[],
): Promise<CalibrationResult> {
  const identity = identityOf(plan, prompts.sha256)
  const journal = await Journal.open(journalOf(plan.out), identity)
  const resumed = journal.size
  try {
    await collect(prompts, journal, plan)
    const requests = prompts.lines.map((_, request) => request)
    const captured = requests.filter(request => journal.head(request)!.skip === undefined)
    const domains = prompts.domains.names()
    const about = {
      model: plan.model,
      domains,
      domainOf: (request: number) => prompts.domains.final(prompts.domainOf[request]!),
      workload: plan.workload,
      provenance: {
        captured_by: 'eldr calibrate',
        prompts_sha256: prompts.sha256,
        capture_options: JSON.stringify(identity),
      },
    }
    const [rest, heldOut] = [0, 1].map(side => captured.filter(request => held[request] === side)) as [
      number[],
      number[],
    ]
    checkStillFree(plan, replaceable)
    // `out` comes last: until it exists, the same command resumes.
    if (plan.holdoutOut !== undefined)
      await writeTrace(plan.holdoutOut, 'evaluation', heldOut, journal, about)
    await writeTrace(plan.out, plan.split, rest, journal, about)
    const other = plan.split === 'calibration' ? 'evaluation' : 'calibration'
    const counts = { [plan.split]: rest.length, [other]: heldOut.length } as CalibrationResult['captured']
    const result = resultOf(plan, prompts, journal, resumed, counts)
    await journal.remove()
    return result
  } catch (error) {
    // A journal without captured experts would only block a run with other options.
    await (journal.shape === undefined ? journal.remove() : journal.close())
    throw error
  }
}

/** Everything that determines the bytes of the traces, except for the server. */
function identityOf(
  {
    model,
    steps,
    ignoreEos,
    temperature,
    api,
    holdout,
    seed,
    limit,
    minCovered,
    workload,
    split,
  }: CalibrationPlan,
  promptsSha256: string,
) {
  return {
    prompts_sha256: promptsSha256,
    model: model!,
    steps,
    ignore_eos: ignoreEos,
    temperature,
    api,
    holdout,
    seed,
    limit: limit ?? null,
    min_covered: minCovered,
    workload: workload ?? null,
    ...(split === 'evaluation' && { split }),
  }
}

function resultOf(
  plan: CalibrationPlan & { readonly model: string },
  { lines }: Prompts,
  journal: Journal,
  resumed: number,
  captured: CalibrationResult['captured'],
): CalibrationResult {
  const heads = lines.map((line, request) => ({ line, head: journal.head(request)! }))
  return {
    model: plan.model,
    ...journal.shape,
    prompts: lines.length,
    resumed,
    captured,
    skipped: SKIPS.map(reason => ({
      reason,
      lines: heads.filter(({ head }) => head.skip === reason).map(({ line }) => line),
    })).filter(({ lines: some }) => some.length > 0),
    shorter: heads.filter(({ head }) => head.skip === undefined && head.steps < plan.steps).length,
    files: { [plan.split]: plan.out, ...(plan.holdoutOut !== undefined && { evaluation: plan.holdoutOut }) },
  }
}

/** Returns existing files that may be replaced. */
function checkFree({ out, holdoutOut, force }: CalibrationPlan): string[] {
  // A calibration that was interrupted while writing may have left the first of its two files.
  const taken = [out, ...(existsSync(journalOf(out)) ? [] : [holdoutOut])].find(
    file => file !== undefined && existsSync(file),
  )
  if (taken !== undefined && !force) throw new EldrError('ELDR_FILE_EXISTS', { file: taken })
  return [out, holdoutOut].filter(file => file !== undefined).filter(existsSync)
}

/** Checks again, since hours may have passed. */
function checkStillFree({ out, holdoutOut, force }: CalibrationPlan, replaceable: readonly string[]): void {
  const taken = [holdoutOut, out].find(
    file => file !== undefined && !replaceable.includes(file) && existsSync(file),
  )
  if (taken === undefined || force) return
  const todo = 'Move it, or add --force to overwrite it, and run the command again: no prompt is sent twice.'
  throw new EldrError('ELDR_FILE_EXISTS', { file: taken, todo })
}

/** Retries as often and with the same delays as for prompts. */
function modelOf({ endpoint, retries, stop, onProgress }: CalibrationPlan, total: number): Promise<string> {
  return firstModel(endpoint, async failures => {
    stop.throwIfAborted()
    if (failures >= retries) return false
    onProgress?.({ done: 0, resumed: 0, total, skipped: 0, waiting: 1 })
    await pause(retryPauseMs(failures), undefined, { signal: stop }).catch(() => stop.throwIfAborted())
    return true
  })
}

function checkSides({ prompts, holdout, holdoutOut }: CalibrationPlan, held: Uint8Array): void {
  const evaluation = held.reduce((sum, one) => sum + one, 0)
  if (holdoutOut === undefined || (evaluation > 0 && evaluation < held.length)) return
  const found = `${held.length} prompts, of which --holdout ${holdout} takes ${evaluation}`
  throw new EldrError('ELDR_TRACE_TOO_SMALL', {
    file: prompts,
    found,
    expected: 'at least one prompt in each trace',
  })
}
