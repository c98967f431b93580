/** Comparison with the NumPy prototype of this project, and the targets set from it. */
import type { Exhibit, ExhibitTable } from '../report/exhibit.ts'
import { gainOf } from '../sim/compare.ts'
import { over } from '../sim/sweep.ts'
import { batchOf, type Simulated, tpotP50, tpotP99, type Value } from './cells.ts'
import { type Context, simulatedFrom } from './context.ts'
import type { Workload } from './fits.ts'
import { asPrototype, BATCHES, measured, served, TOPOLOGY } from './loads.ts'
import { ALL_POLICIES, type LoadPoints, loadGrid, variantOf } from './main-results.ts'
import { MEASURED_POLICIES } from './measured-profile.ts'
import { whyMissed } from './misses.ts'
import { prototypeFigures } from './prototype-figures.ts'
import { ALL_TARGETS, judge, type Judgement, OWN_TARGETS, targetTable, verdicts } from './targets.ts'
import { IN_WORDS } from './traces.ts'
import { change, range } from './words.ts'

/** Cells of Fig. 11, 12 and the foresight exhibit, so they cost no extra run. */
const SERVED_POLICIES = [...ALL_POLICIES, 'union@all'] as const
/** The prototype's load balancers and policies. */
const POLICIES = ['round_robin', 'jsq', 'power_of_two', 'domain', 'band', 'union', 'union@true'] as const

export function againstPrototype(context: Context): Simulated<Exhibit> {
  const parts = context.workloads.map(workload => ({
    workload,
    served: loadGrid(SERVED_POLICIES, BATCHES, served(workload), context),
    alone: loadGrid(POLICIES, BATCHES, asPrototype(workload), context),
    measured: loadGrid(MEASURED_POLICIES, BATCHES, measured(workload), context),
  }))
  return {
    cells: parts.flatMap(part => [part.served, part.alone, part.measured].flatMap(({ cells }) => cells)),
    make: of =>
      exhibit(
        context,
        parts.map(part => ({
          workload: part.workload,
          served: part.served.points(of),
          alone: part.alone.points(of),
          measured: part.measured.points(of),
        })),
      ),
  }
}

type SettingName = 'served' | 'alone' | 'measured'
type Part = Readonly<Record<SettingName, readonly LoadPoints[]>> & { readonly workload: Workload }

function exhibit(context: Context, parts: readonly Part[]): Exhibit {
  const judgement = (name: SettingName, setting: string): Judgement => ({
    setting,
    judged: parts.flatMap(part => part[name].map(load => judge(part.workload, load))),
  })
  const withPrefill = judgement('served', `With prefill (${TOPOLOGY})`)
  const alone = judgement('alone', 'As the prototype ran (16D, rows with replacement)')
  const onMeasured = judgement('measured', `On ${context.measured.name} (${TOPOLOGY})`)
  const batches = parts.flatMap(part =>
    [...part.served, ...part.alone].map(({ points }) => over(variantOf(points, 'jsq')!, batchOf).mean),
  )
  return {
    id: 'against-prototype',
    title: 'Prototype and targets',
    finding: `${verdicts(withPrefill, ALL_TARGETS)} ${verdicts(alone, ALL_TARGETS)} ${verdicts(onMeasured, OWN_TARGETS)}`,
    notes: whyMissed({ withPrefill, alone, onMeasured }),
    source: `${simulatedFrom(context, context.workloads, { topology: `${TOPOLOGY}, and 16D with rows drawn with replacement` })} On 16D against the best of three load balancers, as in the prototype; otherwise of four. Mean batches under jsq of ${range(batches, 1)}. The prototype ran decode only, with 4,000 requests and one or two seeds. Its figures are quoted; where it has a range, the distance is to the nearer end.`,
    tables: [
      targetTable(withPrefill, ALL_TARGETS),
      targetTable(alone, ALL_TARGETS),
      ...parts.map(besideTable),
    ],
    charts: [],
  }
}

function besideTable({ workload: { workload }, served: ours, alone }: Part): ExhibitTable {
  return {
    title: `TPOT against the best load balancer, ${IN_WORDS[workload]}`,
    columns: [
      'load, policy',
      `p50, ${TOPOLOGY}`,
      'p50, 16D',
      'prototype p50 (%)',
      `p99, ${TOPOLOGY}`,
      'p99, 16D',
      'prototype p99 (%)',
    ],
    rows: ours.flatMap(({ batch, points }, at) =>
      ['domain', 'band', 'union', 'union@true'].map(variant => {
        const quoted = prototypeFigures(workload, batch, variant)
        const both = (value: Value) =>
          [points, alone[at]!.points].map(of => change(gainOf(of, variantOf(of, variant)!, value)))
        return [
          `${batch}, ${variant}`,
          ...both(tpotP50),
          quoted?.p50.text ?? null,
          ...both(tpotP99),
          quoted?.p99.text ?? null,
        ]
      }),
    ),
  }
}
