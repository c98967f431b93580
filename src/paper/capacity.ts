/** Highest rate at equal p99, and fewest decoders at equal rate, searched as `eldr plan` does. */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Exhibit } from '../report/exhibit.ts'
import type { Pool } from '../sim/parallel.ts'
import { makePlan, type Plan } from '../sim/plan.ts'
import { RATE_TOLERANCE } from '../sim/plan-search.ts'
import { openRefits } from '../sim/refits.ts'
import type { SimulationResult } from '../sim/result.ts'
import type { StudyData, StudyJob } from '../sim/study.ts'
import { over } from '../sim/sweep.ts'
import { type Cell, type PointOf, tpotP99 } from './cells.ts'
import { type Context, simulatedFrom } from './context.ts'
import type { Workload } from './fits.ts'
import { served } from './loads.ts'
import { IN_WORDS } from './traces.ts'
import { listed, number, signedPercent } from './words.ts'

const POLICIES = ['jsq', 'band', 'union'] as const
/** p99 of jsq at this batch is the limit for all policies. */
const BATCH = 35

export interface CapacityTools {
  readonly pool: Pool<StudyJob, SimulationResult>
  /** Defaults of the pool's jobs. */
  readonly study: StudyData
  /** For artifacts with other numbers of clusters. */
  readonly folder: string
  readonly onProgress?: (done: number, of: number) => void
}

/** Also part of the main results, so it costs no extra run. */
function referenceCell({ rateOf }: Context, workload: Workload): Cell {
  return { variant: 'jsq', rate: rateOf(served(workload), BATCH), setting: served(workload) }
}

export async function capacity(context: Context, pointOf: PointOf, tools: CapacityTools): Promise<Exhibit> {
  const plans: { workload: Workload; rate: number; plan: Plan }[] = []
  for (const workload of context.workloads) {
    const reference = pointOf(referenceCell(context, workload))
    const plan = await planFor(context, workload, reference.rate, over(reference, tpotP99).mean, tools)
    plans.push({ workload, rate: reference.rate, plan })
  }
  return exhibit(context, plans)
}

async function planFor(
  { seeds }: Context,
  workload: Workload,
  rate: number,
  tpotMs: number,
  { pool, study, folder, onProgress }: CapacityTools,
) {
  const setting = served(workload)
  // Jobs of a plan do not name their trace, so the setting is added to each.
  const ownPool: typeof pool = {
    run: (jobs, progress) =>
      pool.run(
        jobs.map(job => ({ ...job, setting: { ...setting, ...job.setting } })),
        progress,
      ),
    close: () => Promise.resolve(),
  }
  const own = join(folder, workload.workload) // threads cache artifacts by path
  await mkdir(own, { recursive: true })
  const refits = await openRefits(setting.artifact, own)
  const asked = {
    study: { ...study, ...setting },
    slo: { tpotMs },
    policies: POLICIES,
    seeds,
    rate,
    pricePerGpuHour: 1,
  }
  return makePlan(asked, {
    pool: ownPool,
    refits,
    onProgress: (_, done, of) => onProgress?.(done, of),
  })
}

function exhibit(
  context: Context,
  plans: readonly { workload: Workload; rate: number; plan: Plan }[],
): Exhibit {
  const rows = plans.flatMap(({ workload, rate, plan }) =>
    plan.results.map(({ variant, highest, fewest }) => ({
      workload: workload.workload,
      rate,
      plan,
      variant,
      highest,
      fewest,
    })),
  )
  const says = (variant: string) =>
    listed(
      rows
        .filter(row => row.variant === variant)
        .map(
          ({ workload, highest, fewest }) =>
            `${signedPercent(highest.gain ?? 0)} requests per second, or ${fewest?.value ?? 'no number of'} decoders at jsq’s rate (${IN_WORDS[workload]})`,
        ),
    )
  return {
    id: 'capacity',
    title: 'Capacity at equal p99',
    finding: `At the p99 TPOT that jsq has at a mean batch of ${BATCH} on 16 decoders: union ${says('union')}; band ${says('band')}.`,
    source: `${simulatedFrom(context, context.workloads, { artifact: 'as many clusters as decoders' })} Searched as eldr plan does: rates to within ${100 * RATE_TOLERANCE} %, mean p99 over seeds compared with the limit, longer runs where ${context.requests} requests do not fill the batches.`,
    tables: [
      {
        columns: [
          'workload, policy',
          'p99 TPOT limit',
          'highest rate on 16 decoders',
          'against jsq',
          'batch at that rate',
          'fewest decoders',
          'at rate',
        ],
        rows: rows.map(({ workload, rate, plan, variant, highest, fewest }) => [
          `${workload}, ${variant}`,
          number(plan.slo.tpotMs, 2, 'ms'),
          highest.value === null ? null : number(highest.value, 0, 'per second'),
          highest.gain === null ? null : { ...number(100 * highest.gain, 1, '%'), signed: true },
          number(highest.probe.batch, 1),
          fewest?.value == null ? null : number(fewest.value, 0),
          number(rate, 0, 'per second'),
        ]),
      },
    ],
    charts: [],
  }
}
