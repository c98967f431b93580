/** Ablations of the recipe: Fig. 14 (transform), Fig. 15 (balanced clusters), Fig. 16 (band width τ). */
import type { Interval } from '../sim/confidence.ts'
import type { Exhibit, ExhibitBar, ExhibitChart, ExhibitTable } from '../report/exhibit.ts'
import { whole } from '../report/numbers.ts'
import { changeAgainst } from '../sim/sweep.ts'
import {
  type Cell,
  meanChange,
  type PointOf,
  type Setting,
  type Simulated,
  tpotP50,
  tpotP99,
} from './cells.ts'
import { type Context, simulatedFrom } from './context.ts'
import { OTHER_TRANSFORMS, type Workload } from './fits.ts'
import { BATCHES, served } from './loads.ts'
import { pair } from './main-results.ts'
import { fixed } from './rounded.ts'
import { IN_WORDS } from './traces.ts'
import { change, ends, fewer, listed, number, range } from './words.ts'

/** Change of p50 and p99 against round_robin, mean over the rates of all four loads. */
interface Change {
  readonly p50: Interval
  readonly p99: Interval
}

/** Band width and variant; 0.1 is the default. */
const TAUS = [
  ['0', 'band@0'],
  ['0.1', 'band'],
  ['0.2', 'band@0.2'],
  ['0.3', 'band@0.3'],
] as const
/** Transforms are compared at this batch; the paper uses a rate in the middle of its range. */
const TRANSFORM_BATCH = 20

/** A variant under its own setting, at the rates of the main results. */
function overRates(
  { rateOf }: Context,
  workload: Workload,
  variant: string,
  setting: Setting = served(workload),
) {
  const base = served(workload)
  const cells = BATCHES.map(batch => {
    const rate = rateOf(base, batch)
    return {
      base: { variant: 'round_robin', rate, setting: base },
      cell: { variant, rate, setting },
    } satisfies Record<string, Cell>
  })
  return {
    cells: cells.flatMap(({ base: against, cell }) => [against, cell]),
    changes(of: PointOf): Change {
      const points = cells.map(one => ({ base: of(one.base), point: of(one.cell) }))
      return { p50: meanChange(points, tpotP50), p99: meanChange(points, tpotP99) }
    },
  }
}

const withArtifact = (workload: Workload, artifact: string): Setting => ({ ...served(workload), artifact })

export function balance(context: Context): Simulated<Exhibit> {
  const parts = context.workloads.map(workload => ({
    workload,
    balanced: overRates(context, workload, 'band'),
    vanilla: overRates(context, workload, 'band', withArtifact(workload, workload.artifacts.vanilla)),
  }))
  return {
    cells: parts.flatMap(({ balanced, vanilla }) => [...balanced.cells, ...vanilla.cells]),
    make: of => {
      const rows = parts.map(({ workload, balanced, vanilla }) => ({
        workload,
        balanced: balanced.changes(of),
        vanilla: vanilla.changes(of),
      }))
      const groups = rows.map(({ workload, balanced, vanilla }) => ({
        heading: IN_WORDS[workload.workload],
        bars: [
          { label: 'balanced', of: balanced },
          { label: 'plain', of: vanilla },
        ],
      }))
      return {
        id: 'fig-15',
        title: 'Fig. 15: balanced clusters against plain K-means',
        finding: `Mean change of TPOT p50 / p99 against round_robin: ${listed(rows.map(({ workload, balanced, vanilla }) => `balanced ${pair(balanced.p50.mean, balanced.p99.mean)}, plain ${pair(vanilla.p50.mean, vanilla.p99.mean)} (${IN_WORDS[workload.workload]}, plain clusters of ${range(workload.vanillaSizes, 0)} requests)`))}.`,
        paper: {
          finding:
            'Plain K-means lowers the median by up to 9.8 % and raises p99 by up to 17.4 %; balanced clusters lower both, by up to 12.6 % and 6.8 %.',
          differs:
            'The mix of requests within a few seconds differs from the calibration mix, so clusters of equal size do not get equal load. Why this affects p99 here and not in the paper is not known.',
        },
        source: `${simulatedFrom(context, context.workloads)} τ = 0.1; mean over the rates of four loads.`,
        tables: [changeTable('clusters', groups)],
        charts: changeCharts(groups),
      }
    },
  }
}

export function bandWidth(context: Context): Simulated<Exhibit> {
  const parts = context.workloads.map(workload => ({
    workload,
    taus: TAUS.map(([tau, variant]) => ({ tau, ...overRates(context, workload, variant) })),
  }))
  return {
    cells: parts.flatMap(({ taus }) => taus.flatMap(({ cells }) => cells)),
    make: of => {
      const groups = parts.map(({ workload, taus }) => ({
        heading: IN_WORDS[workload.workload],
        bars: taus.map(({ tau, changes }) => ({ label: `τ = ${tau}`, of: changes(of) })),
      }))
      return {
        id: 'fig-16',
        title: 'Fig. 16: band width τ',
        finding: `Mean change of TPOT p50 / p99 against round_robin: ${listed(groups.map(({ heading, bars }) => `${bars.map(({ label, of: { p50, p99 } }) => `${pair(p50.mean, p99.mean)} (${label})`).join(', ')} on the ${heading}`))}.`,
        paper: {
          finding:
            'τ = 0 raises p99 on four of six workloads, by up to 7.9 %; τ = 0.1 lowers the median by 5.2 to 12.7 % and p99 on all six; wider bands lose part of the median gain.',
          differs: 'The same trade-off, but our tail needs a wider band. The cause is not known.',
        },
        source: `${simulatedFrom(context, context.workloads)} Mean over the rates of four loads.`,
        tables: [changeTable('band', groups)],
        charts: changeCharts(groups),
      }
    },
  }
}

/**
 * Evaluation requests carry no gate scores, so those transforms cannot be simulated: they are compared by
 * their clusters.
 */
export function transforms(context: Context): Simulated<Exhibit> {
  const parts = context.workloads.map(workload => {
    const rate = context.rateOf(served(workload), TRANSFORM_BATCH)
    const cell = (variant: string, setting: Setting): Cell => ({ variant, rate, setting })
    const base = cell('round_robin', served(workload))
    const simulated = new Map([
      ['count-idf', cell('band', served(workload))],
      ...OTHER_TRANSFORMS.map(
        name => [name, cell('band', withArtifact(workload, workload.artifacts.transforms[name]))] as const,
      ),
    ])
    return { workload, base, simulated }
  })
  return {
    cells: parts.flatMap(({ base, simulated }) => [base, ...simulated.values()]),
    make: of => {
      const saved = ({ clusterQualities: qualities }: Workload, name: string) => {
        const quality = qualities.find(({ transform }) => transform === name)
        return quality === undefined ? NaN : quality.active / quality.activeMixed - 1
      }
      const compared = parts.map(({ workload }) => workload.clusterQualities[0]?.requests ?? 0)
      const medians = parts.map(({ base, simulated }) =>
        [...simulated].map(([name, cell]) => ({
          name,
          p50: changeAgainst(of(base), of(cell), tpotP50).mean,
        })),
      )
      return {
        id: 'fig-14',
        title: 'Fig. 14: count-idf against other transforms',
        finding: `${listed(parts.map(({ workload }) => `clusters from count-idf activate ${fewer(saved(workload, 'count-idf'))} experts than mixed batches, clusters from gate-prob ${fewer(saved(workload, 'gate-prob'))} (${IN_WORDS[workload.workload]})`)).replace(/^c/, 'C')}. Simulated median TPOT against round_robin: ${listed(medians.map((of, at) => `${of.map(({ name, p50 }) => `${name} ${fixed(100 * p50, 1)} %`).join(', ')} (${IN_WORDS[parts[at]!.workload.workload]})`))}.`,
        paper: {
          finding: 'count-idf lowers the median by 3 points more than gate-prob on average, and by up to 14.',
          differs:
            'Evaluation requests carry no gate scores, so gate-prob and gate-logit are compared by the clusters of calibration requests, not by TPOT.',
        },
        source: `${simulatedFrom(context, context.workloads)} Batch ${TRANSFORM_BATCH}. Clusters: 16 of the first ${listed(compared.map(count => whole(count)))} calibration requests; experts expected in a step of 32 requests of one cluster.`,
        tables: parts.map(({ workload, base, simulated }) => ({
          title: IN_WORDS[workload.workload],
          columns: ['transform', 'ρ', 'experts, one cluster', 'against mixed', 'TPOT p50', 'TPOT p99'],
          rows: workload.clusterQualities.map(({ transform, rho, active }) => {
            const cell = simulated.get(transform)
            const against = (value: typeof tpotP50) =>
              cell === undefined ? null : change(changeAgainst(of(base), of(cell), value))
            return [
              transform,
              number(rho, 3),
              number(active, 1),
              { ...number(100 * saved(workload, transform), 1, '%'), signed: true as const },
              against(tpotP50),
              against(tpotP99),
            ]
          }),
        })),
        charts: [],
      }
    },
  }
}

interface Group {
  readonly heading: string
  readonly bars: readonly { readonly label: string; readonly of: Change }[]
}

/** All groups have the same bars. */
function changeTable(name: string, groups: readonly Group[]): ExhibitTable {
  return {
    title: 'TPOT against round_robin, mean over the loads',
    columns: [name, ...groups.flatMap(({ heading }) => [`p50, ${heading}`, `p99, ${heading}`])],
    rows: groups[0]!.bars.map(({ label }, at) => [
      label,
      ...groups.flatMap(({ bars }) => [change(bars[at]!.of.p50), change(bars[at]!.of.p99)]),
    ]),
  }
}

function changeCharts(groups: readonly Group[]): ExhibitChart[] {
  const bar = (label: string, { mean, half }: Interval): ExhibitBar => {
    const value = 100 * mean
    return {
      label,
      ...number(value, 1, '%'),
      ...ends(value, 100 * half),
    }
  }
  return (['p50', 'p99'] as const).map(metric => ({
    kind: 'bars',
    title: `TPOT ${metric} against round_robin`,
    x: 'change (%)',
    groups: groups.map(({ heading, bars }) => ({
      heading,
      bars: bars.map(({ label, of }) => bar(label, of[metric])),
    })),
  }))
}
