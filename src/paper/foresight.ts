/**
 * union's prediction compared with the true decode patterns: no neighbours, neighbours from the nearest
 * clusters, or from all.
 */
import type { Exhibit } from '../report/exhibit.ts'
import { type Simulated, tpotP50, tpotP99 } from './cells.ts'
import { type Context, simulatedFrom } from './context.ts'
import { BATCHES, served } from './loads.ts'
import { gains, gainTable, type LoadPoints, loadGrid } from './main-results.ts'
import { fixed } from './rounded.ts'
import { IN_WORDS } from './traces.ts'
import { listed, sum } from './words.ts'

const POLICIES = [
  'random',
  'round_robin',
  'jsq',
  'power_of_two',
  'union@own',
  'union',
  'union@all',
  'union@true',
] as const

export function foresight(context: Context): Simulated<Exhibit> {
  const parts = context.workloads.map(workload => ({
    workload,
    ...loadGrid(POLICIES, BATCHES, served(workload), context),
  }))
  return {
    cells: parts.flatMap(({ cells }) => cells),
    make: of => {
      const grids = parts.map(({ workload, points }) => ({ workload: workload.workload, loads: points(of) }))
      /** Share of the gain with true patterns, over all loads. */
      const kept = (loads: readonly LoadPoints[], variant: string) =>
        total(loads, variant, tpotP50) / total(loads, 'union@true', tpotP50)
      const says = (variant: string) =>
        `${variant} ${listed(grids.map(({ workload, loads }) => `${fixed(100 * kept(loads, variant), 0)} % (${IN_WORDS[workload]})`))}`
      return {
        id: 'foresight',
        title: 'How good union’s prediction is',
        finding: `Share of union@true’s median gain that each variant reaches, over all four loads: ${['union@own', 'union', 'union@all'].map(says).join('; ')}.`,
        source: `${simulatedFrom(context, context.workloads)} union predicts from the prompt’s own counts and from calibration requests in the nearest clusters; @own uses the prompt alone, @all searches all calibration requests, @true knows the decode pattern of each request.`,
        tables: grids.map(({ workload, loads }) =>
          gainTable(loads, `TPOT against the best load balancer, ${IN_WORDS[workload]}`),
        ),
        charts: [],
      }
    },
  }
}

const total = (
  loads: readonly LoadPoints[],
  variant: string,
  value: typeof tpotP50 | typeof tpotP99,
): number => sum(gains(loads, variant, value).map(({ mean }) => mean))
