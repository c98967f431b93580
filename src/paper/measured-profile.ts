/** Fig. 11 and 12 again, with a profile for which a whole decode step was measured. */
import { stepUs } from '../cost/profile.ts'
import type { Exhibit } from '../report/exhibit.ts'
import { type Simulated, tpotP50, tpotP99 } from './cells.ts'
import { type Context, simulatedFrom } from './context.ts'
import { BATCHES, measured, served } from './loads.ts'
import { gainSpan, gainTable, loadGrid } from './main-results.ts'
import { fixed } from './rounded.ts'
import { IN_WORDS } from './traces.ts'
import { listed } from './words.ts'

/** Fixed, because the evidence compares these: a new load balancer must not change it. */
export const MEASURED_POLICIES = ['random', 'round_robin', 'jsq', 'power_of_two', 'band', 'union'] as const

export function onMeasuredProfile(context: Context): Simulated<Exhibit> {
  const parts = context.workloads.map(workload => ({
    workload: workload.workload,
    ours: loadGrid(MEASURED_POLICIES, BATCHES, measured(workload), context),
    beside: loadGrid(MEASURED_POLICIES, BATCHES, served(workload), context),
  }))
  return {
    cells: parts.flatMap(({ ours, beside }) => [...ours.cells, ...beside.cells]),
    make: of => {
      const { profile, measured: whole } = context
      const grids = parts.map(({ workload, ours, beside }) => ({
        workload,
        ours: ours.points(of),
        beside: beside.points(of),
      }))
      const share = (each: Context['profile']) => {
        const active = each.shape.experts / 2
        const stepTimeUs = stepUs(
          each,
          20,
          active,
          0,
          each.decode.windows?.map(() => 0),
        )
        return (each.shape.layers * each.decode.perActiveExpertUs * active) / stepTimeUs
      }
      return {
        id: 'measured-profile',
        title: 'Fig. 11 and 12 with a measured step',
        finding: `With ${whole.name} ${listed(grids.map(({ workload, ours }) => `band changes the median by ${gainSpan(ours, 'band', tpotP50)} and p99 by ${gainSpan(ours, 'band', tpotP99)}, union by ${gainSpan(ours, 'union', tpotP50)} and ${gainSpan(ours, 'union', tpotP99)} (${IN_WORDS[workload]})`))}. With half of the experts active, 20 requests and no attention cost, loading experts takes ${fixed(100 * share(whole), 0)} % of a step with this profile and ${fixed(100 * share(profile), 0)} % with ${profile.name}, of which only the MoE part is measured.`,
        source: `${simulatedFrom(context, context.workloads, { profile: whole })} ${whole.provenance.what}.`,
        tables: grids.flatMap(({ workload, ours, beside }) => [
          gainTable(ours, `${whole.name}, ${IN_WORDS[workload]}`),
          gainTable(beside, `${profile.name}, ${IN_WORDS[workload]}`),
        ]),
        charts: [],
      }
    },
  }
}
