/** Fig. 13: active experts of a decode step by batch size. */
import type { Exhibit, ExhibitChart } from '../report/exhibit.ts'
import { whole } from '../report/numbers.ts'
import type { Point, Simulated } from './cells.ts'
import { type Context, simulatedFrom } from './context.ts'
import { BATCHES, served } from './loads.ts'
import { loadGrid, variantOf } from './main-results.ts'
import { IN_WORDS } from './traces.ts'
import { average, fewer, listed, number, sum } from './words.ts'

const POLICIES = ['round_robin', 'band', 'union'] as const
/** Batch sizes in the table; the chart has all of them. */
const SHOWN_BATCHES = [8, 16, 24, 32, 40, 48] as const
/** Batch sizes with fewer steps are left out. */
const MIN_STEPS = 200

/** batch → steps and their mean number of active experts, over all rates and seeds. */
type ByBatch = ReadonlyMap<number, { readonly steps: number; readonly active: number }>

export function activeByBatch(context: Context): Simulated<Exhibit> {
  const parts = context.workloads.map(workload => ({
    workload,
    ...loadGrid(POLICIES, BATCHES, served(workload), context),
  }))
  return {
    cells: parts.flatMap(({ cells }) => cells),
    make: of => {
      const merged = parts.map(({ workload, points }) => {
        const loads = points(of)
        const runsOf = (variant: string) => mergedSteps(loads.map(load => variantOf(load.points, variant)!))
        return {
          workload: workload.workload,
          byVariant: POLICIES.map(variant => ({ variant, steps: runsOf(variant) })),
        }
      })
      const reduction = ({ byVariant }: (typeof merged)[number], variant: string) => {
        const [base, ours] = ['round_robin', variant].map(
          name => byVariant.find(one => one.variant === name)!.steps,
        )
        return average(
          [...base!].flatMap(([batch, { active }]) =>
            ours!.has(batch) ? [ours!.get(batch)!.active / active - 1] : [],
          ),
        )
      }
      const steps = sum(
        merged.flatMap(({ byVariant }) =>
          byVariant.flatMap(one => [...one.steps.values()].map(bin => bin.steps)),
        ),
      )
      return {
        id: 'fig-13',
        title: 'Fig. 13: active experts at equal batch size',
        finding: `At equal batch size, averaged over sizes, a step activates ${listed(merged.map(one => `${fewer(reduction(one, 'band'))} experts with band and ${fewer(reduction(one, 'union'))} with union (${IN_WORDS[one.workload]})`))} than with round_robin.`,
        paper: {
          finding: '22.0 % fewer on Qwen3-30B-A3B and the task workload, averaged over batch sizes.',
          differs:
            'On lab16 a batch of one domain differs from a mixed batch half as much as in the paper (Fig. 4), and routing cannot save more experts than the requests share.',
        },
        source: `${simulatedFrom(context, context.workloads)} ${whole(steps)} decode steps at all four loads; batch sizes with at least ${MIN_STEPS} steps.`,
        tables: merged.map(({ workload, byVariant }) => ({
          title: `Active experts per layer, ${IN_WORDS[workload]}`,
          columns: ['requests in the step', ...POLICIES],
          rows: SHOWN_BATCHES.filter(batch => byVariant.every(({ steps: bins }) => bins.has(batch))).map(
            batch => [`${batch}`, ...byVariant.map(({ steps: bins }) => number(bins.get(batch)!.active, 1))],
          ),
        })),
        charts: merged.map(({ workload, byVariant }): ExhibitChart => ({
          kind: 'lines',
          title: `Active experts per layer, ${IN_WORDS[workload]}`,
          x: 'requests in the step',
          y: 'active experts',
          series: byVariant.map(({ variant, steps: bins }) => ({
            label: variant,
            points: [...bins].map(([x, { active }]) => ({ x, y: active })),
          })),
        })),
      }
    },
  }
}

function mergedSteps(points: readonly Point[]): ByBatch {
  const bins = new Map<number, { steps: number; active: number }>()
  for (const { runs } of points) {
    for (const { batch, steps, active } of runs.flatMap(run => run.activeByBatch)) {
      const bin = bins.get(batch) ?? { steps: 0, active: 0 }
      const all = bin.steps + steps
      bins.set(batch, { steps: all, active: (bin.active * bin.steps + active * steps) / all })
    }
  }
  return new Map([...bins].filter(([, { steps }]) => steps >= MIN_STEPS).toSorted(([a], [b]) => a - b))
}
