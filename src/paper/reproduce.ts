/**
 * Every table and figure of the paper that traces can give: fits, then the search for rates, then all
 * simulations in one queue, then the report. The same traces, profile and seeds give the same report, byte
 * for byte.
 */
import { loadProfile } from '../cost/profile-file.ts'
import type { Exhibit, ExhibitReport } from '../report/exhibit.ts'
import { openStudy } from '../sim/study-pool.ts'
import type { StudyData } from '../sim/study.ts'
import { activationExhibits } from './activation.ts'
import { capacity } from './capacity.ts'
import { runCells, type Simulated } from './cells.ts'
import type { Context } from './context.ts'
import { domainBatchesExhibit } from './domain-batches.ts'
import { fitWorkload } from './fits.ts'
import { FEW_BATCHES, findLoads, MEASURED_PROFILE, TOPOLOGY } from './loads.ts'
import { moeLayerExhibit } from './moe-layer.ts'
import { allLoads, allParts, type Parts, quickLoads, quickParts } from './parts.ts'
import { recordedIn } from './recorded.ts'
import { reportOf } from './report.ts'
import { signatureExhibits } from './signature-quality.ts'
import { tracesIn } from './traces.ts'

export interface ReproduceOptions {
  /** Folder of the traces (default: the shipped traces). */
  readonly traces?: string
  /** Folder of recorded arrivals (default: none are simulated). */
  readonly workloads?: string
  readonly profile: string
  readonly seeds: number
  /** Only Fig. 11 and 12, with few policies and loads, and the exhibits without simulation. */
  readonly quick: boolean
  /** Existing folder for artifacts. */
  readonly artifacts: string
  /** Default: one per core. */
  readonly threads?: number
  readonly onProgress?: (stage: string, done: number, of: number) => void
}

/** Requests per run. Trace rows repeat, so more requests add little. */
const REQUESTS = 4_000

export async function reproduce(options: ReproduceOptions): Promise<ExhibitReport> {
  const { artifacts, quick, onProgress } = options
  const [profile, measured] = [await loadProfile(options.profile), await loadProfile(MEASURED_PROFILE)]
  const [task, lang] = await tracesIn(options.traces)
  // A quick run does not use them, but errors in a given folder should show at once.
  const arrivals =
    options.workloads === undefined
      ? []
      : await recordedIn(options.workloads, profile, REQUESTS, Math.max(...FEW_BATCHES))
  onProgress?.('fits', 0, 2)
  const fittedTask = await fitWorkload(task, artifacts, !quick)
  onProgress?.('fits', 1, 2)
  const workloads = [fittedTask, await fitWorkload(lang, artifacts, !quick)] as const
  const motivation = [
    ...activationExhibits(workloads),
    await moeLayerExhibit(),
    ...(await domainBatchesExhibit([task, lang])),
  ]
  const basis = {
    workloads,
    profile,
    measured,
    seeds: options.seeds,
    requests: REQUESTS,
    recorded: quick ? [] : arrivals,
  }
  const { context, ...simulated } = await simulate(basis, options)
  return reportOf(context, {
    motivation: motivation.toSorted((a, b) => numberIn(a.id) - numberIn(b.id)),
    signatures: signatureExhibits(workloads),
    ...simulated,
  })
}

const numberIn = (id: string): number => Number(/\d+/.exec(id)?.[0])

type Made = Readonly<Record<keyof Parts, readonly Exhibit[]>>

async function simulate(
  basis: Omit<Context, 'rateOf'>,
  options: ReproduceOptions,
): Promise<Made & { readonly context: Context }> {
  const { quick, artifacts: folder } = options
  const stage = (name: string) => (done: number, of: number) => options.onProgress?.(name, done, of)
  const study: StudyData = {
    trace: basis.workloads[0].evaluation.path,
    profile: options.profile,
    topology: TOPOLOGY,
    requests: REQUESTS,
    arrivals: 'poisson',
    rows: 'passes',
  }
  const pool = openStudy(study, options.threads)
  try {
    const profileOf = ({ profile }: Partial<StudyData>) =>
      profile === MEASURED_PROFILE ? basis.measured : basis.profile
    const rateOf = await findLoads(
      quick ? quickLoads(basis) : allLoads(basis),
      profileOf,
      pool,
      stage('rates'),
    )
    const context = { ...basis, rateOf }
    const { main, validation, scale, beyond } = quick ? quickParts(context) : allParts(context)
    const cells = [main, validation, scale, beyond].flat().flatMap(part => part.cells)
    const seeds = Array.from({ length: basis.seeds }, (_, seed) => seed)
    const pointOf = await runCells(cells, { pool, seeds, onProgress: stage('runs') })
    const planned = quick
      ? []
      : [await capacity(context, pointOf, { pool, study, folder, onProgress: stage('capacity') })]
    const made = (section: readonly Simulated<Exhibit>[]) => section.map(({ make }) => make(pointOf))
    return {
      context,
      main: made(main),
      validation: made(validation),
      scale: made(scale),
      beyond: [...made(beyond), ...planned],
    }
  } finally {
    await pool.close()
  }
}
