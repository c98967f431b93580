/** A calibration from a file of prompts to traces; docs/guides/calibration.md is the same for users. */
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
  /** The first that the server names unless told. */
  readonly model?: string
  readonly prompts: string
  readonly out: string
  /** What `out` is to be: an evaluation has the experts of every step, of prompts that were held out before. */
  readonly split: Split
  /** Absent without a hold-out. */
  readonly holdoutOut?: string
  readonly holdout: number
  /** Only the first so many prompts. */
  readonly limit?: number
  readonly workload?: string
  readonly force: boolean
}

export interface CalibrationResult extends Partial<ModelShape> {
  readonly model: string
  readonly prompts: number
  /** Of them, those that a journal had already. */
  readonly resumed: number
  readonly captured: { readonly calibration: number; readonly evaluation: number }
  readonly skipped: readonly { readonly reason: Skip; readonly lines: readonly number[] }[]
  /** Requests whose text ended before the steps that were asked for. */
  readonly shorter: number
  readonly files: { readonly calibration?: string; readonly evaluation?: string }
}

export const journalOf = (out: string): string => `${out}.journal`

export async function calibrate(plan: CalibrationPlan): Promise<CalibrationResult> {
  const ours = checkFree(plan)
  const prompts = await openPrompts(plan.prompts, plan.api, plan.limit)
  try {
    const held = holdOut({ keys: prompts.keys, domains: prompts.domainOf }, plan.holdout, plan.seed)
    checkSides(plan, held)
    const model = plan.model ?? (await modelOf(plan, prompts.lines.length))
    const unlock = lock(journalOf(plan.out))
    try {
      return await withJournal({ ...plan, model }, prompts, held, ours)
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
  ours: readonly string[],
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
      ...(plan.workload !== undefined && { workload: plan.workload }),
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
    checkStillFree(plan, ours)
    // The calibration last: while it is not there, the command can be given again as it was.
    if (plan.holdoutOut !== undefined)
      await writeTrace(plan.holdoutOut, 'evaluation', heldOut, journal, about)
    await writeTrace(plan.out, plan.split, rest, journal, about)
    const other = plan.split === 'calibration' ? 'evaluation' : 'calibration'
    const counts = { [plan.split]: rest.length, [other]: heldOut.length } as CalibrationResult['captured']
    const result = resultOf(plan, prompts, journal, resumed, counts)
    await journal.remove()
    return result
  } catch (error) {
    // One without experts in it would only be in the way of the next, with other options perhaps.
    await (journal.shape === undefined ? journal.remove() : journal.close())
    throw error
  }
}

/** All that the bytes of the traces depend on, the server aside. */
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

/** Gives the files that are there and may be replaced nevertheless. */
function checkFree({ out, holdoutOut, force }: CalibrationPlan): string[] {
  // A calibration that was stopped while it wrote may have left the first of its two files.
  const taken = [out, ...(existsSync(journalOf(out)) ? [] : [holdoutOut])].find(
    file => file !== undefined && existsSync(file),
  )
  if (taken !== undefined && !force) throw new EldrError('ELDR_FILE_EXISTS', { file: taken })
  return [out, holdoutOut].filter(file => file !== undefined).filter(existsSync)
}

/** Hours may have passed since the first look. */
function checkStillFree({ out, holdoutOut, force }: CalibrationPlan, ours: readonly string[]): void {
  const taken = [holdoutOut, out].find(file => file !== undefined && !ours.includes(file) && existsSync(file))
  if (taken === undefined || force) return
  const todo =
    'Move it away, or give --force to have it replaced, and run the command again: nothing is asked twice.'
  throw new EldrError('ELDR_FILE_EXISTS', { file: taken, todo })
}

/** Asked as often, and with the same pauses, as the prompts are. */
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
  const found = `${held.length} prompts, of which a hold-out of ${holdout} is ${evaluation}`
  throw new EldrError('ELDR_TRACE_TOO_SMALL', {
    file: prompts,
    found,
    expected: 'one at least on either side',
  })
}
