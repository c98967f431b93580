/** Fig. 11 and 12: all policies by request rate. */
import type { Exhibit, ExhibitChart, ExhibitNumber, ExhibitTable } from '../report/exhibit.ts'
import { bestBalancer, gainOf, LOAD_BALANCERS } from '../sim/compare.ts'
import type { Interval } from '../sim/confidence.ts'
import { changeAgainst, over } from '../sim/sweep.ts'
import {
  batchOf,
  cellsOf,
  type Cell,
  type Point,
  type PointOf,
  type Setting,
  type Simulated,
  tpotP50,
  tpotP99,
  ttftP50,
  type Value,
} from './cells.ts'
import { type Context, simulatedFrom } from './context.ts'
import type { Workload } from './fits.ts'
import { served } from './loads.ts'
import { fixed } from './rounded.ts'
import type { WorkloadName } from './traces.ts'
import { change, ends, listed, mean, number, outOf, range, signedPercent, span } from './words.ts'

export const ALL_POLICIES = [
  'random',
  'round_robin',
  'jsq',
  'power_of_two',
  'domain',
  'band',
  'eldr',
  'union',
  'union@true',
] as const
export const QUICK_POLICIES = ['round_robin', 'jsq', 'band', 'eldr', 'union'] as const

/** Points of several policies at one mean batch. */
export interface LoadPoints {
  readonly batch: number
  readonly points: readonly Point[]
}

/** Policies × batches under one setting: the cells to run, and their points. */
export function loadGrid(
  policies: readonly string[],
  batches: readonly number[],
  setting: Setting,
  { rateOf }: Context,
) {
  const rows = batches.map(batch => ({ batch, cells: cellsOf(policies, rateOf(setting, batch), setting) }))
  const cells: Cell[] = rows.flatMap(row => row.cells)
  return {
    cells,
    points: (of: PointOf): LoadPoints[] => rows.map(row => ({ batch: row.batch, points: row.cells.map(of) })),
  }
}

export const variantOf = (points: readonly Point[], variant: string): Point | undefined =>
  points.find(point => point.variant === variant)

/** Change of a policy against the best load balancer at each load; loads without the policy are left out. */
export function gains(loads: readonly LoadPoints[], variant: string, value: Value): Interval[] {
  return loads.flatMap(({ points }) => {
    const point = variantOf(points, variant)
    const gain = point && gainOf(points, point, value)
    return gain === undefined ? [] : [gain]
  })
}

export const gainSpan = (loads: readonly LoadPoints[], variant: string, value: Value): string =>
  span(gains(loads, variant, value).map(({ mean: share }) => share))

const PAPER: Readonly<Record<WorkloadName, { id: string; title: string; finding: string; differs: string }>> =
  {
    task: {
      id: 'fig-11',
      title: 'Fig. 11: time per token on the task mix',
      finding:
        'ELDR lowers the median TPOT by 7.0 to 13.9 % and p99 by 3.4 to 6.0 % against the best of four load balancers (three models, mean over rates); routing by domain label lowers the median by 6.8 to 9.7 %.',
      differs:
        'Simulated, not served, on lab16, whose domains share more experts than those of the paper’s models. Why p99 gains less than in the paper is not known. Simulated step times do not vary at random, and the effect of random variation has not been simulated.',
    },
    lang: {
      id: 'fig-12',
      title: 'Fig. 12: time per token on the language mix',
      finding:
        'ELDR lowers the median TPOT by 5.9 to 10.0 %; p99 falls by 6.2 % on Qwen3-30B-A3B and rises by 1.5 % and 0.2 % on the other two. Routing by language label matches load balancing at the median and costs up to 6.1 % at p99.',
      differs:
        'Simulated, not served. Three quarters of the requests are in two of ten languages and each language has at least one worker, so routing by label leaves some workers idle and others full, more than with the paper’s mix.',
    },
  }

export function mainResults(
  context: Context,
  workload: Workload,
  policies: readonly string[],
  batches: readonly number[],
): Simulated<Exhibit> {
  const { cells, points } = loadGrid(policies, batches, served(workload), context)
  return { cells, make: of => exhibit(context, workload, points(of)) }
}

function exhibit(context: Context, workload: Workload, loads: readonly LoadPoints[]): Exhibit {
  const { id, title, finding, differs } = PAPER[workload.workload]
  const seen = loads.map(({ points }) => over(variantOf(points, 'jsq')!, batchOf).mean)
  const says = (variant: string) =>
    loads.some(({ points }) => variantOf(points, variant))
      ? `${variant} ${gainSpan(loads, variant, tpotP50)} / ${gainSpan(loads, variant, tpotP99)}`
      : ''
  return {
    id,
    title,
    finding: `TPOT p50 / p99 against the best load balancer, at mean batches of ${range(seen, 0)}: ${[
      'band',
      'eldr',
      'union',
      'domain',
      'union@true',
    ]
      .map(says)
      .filter(text => text !== '')
      .join('; ')}.${domainAgainstBand(loads)}${duplicatesWarning(
      loads.flatMap(({ points }) => points),
      workload,
    )}`,
    paper: { finding, differs },
    source: `${simulatedFrom(context, [workload])} The rates give jsq mean batches of about ${listed(loads.map(({ batch }) => batch))}.`,
    tables: [gainTable(loads), ...loads.map(({ points }) => loadTable(points))],
    charts: [
      chart(loads, 'Median TPOT by rate', 'TPOT p50 (ms)', tpotP50),
      chart(loads, 'p99 TPOT by rate', 'TPOT p99 (ms)', tpotP99),
      chart(loads, 'Median TTFT by rate', 'TTFT p50 (ms)', ttftP50),
      gainChart(loads),
    ],
  }
}

/**
 * Changes of p50 and p99, each against its best load balancer, one column per load. No units: eight columns
 * are wide enough.
 */
export function gainTable(
  loads: readonly LoadPoints[],
  title = 'TPOT against the best load balancer, by mean batch',
): ExhibitTable {
  const variants = loads[0]!.points
    .map(({ variant }) => variant)
    .filter(variant => !LOAD_BALANCERS.includes(variant))
  const column = (name: string) => loads.map(({ batch }) => `${name} at ${batch}`)
  return {
    title: `${title} (%)`,
    columns: ['policy', ...column('p50'), ...column('p99')],
    rows: variants.map(variant => [
      variant,
      ...[tpotP50, tpotP99].flatMap(value =>
        loads.map(({ points }) => withoutUnit(change(gainOf(points, variantOf(points, variant)!, value)))),
      ),
    ]),
  }
}

function withoutUnit(cell: ExhibitNumber | null): ExhibitNumber | null {
  if (cell === null) return null
  const { unit: _, ...number } = cell
  return number
}

function loadTable(points: readonly Point[]): ExhibitTable {
  const jsq = over(variantOf(points, 'jsq')!, batchOf).mean
  const gain = (point: Point, value: Value) =>
    change(changeAgainst(bestBalancer(points, value)!, point, value))
  return {
    title: `${points[0]!.rate} requests per second: mean batch ${fixed(jsq, 1)} under jsq`,
    columns: ['policy', 'TPOT p50', 'change', 'TPOT p99', 'change', 'TTFT p50', 'active experts', 'batch'],
    rows: points.map(point => [
      point.variant,
      mean(over(point, tpotP50), 2, 'ms'),
      gain(point, tpotP50),
      mean(over(point, tpotP99), 2, 'ms'),
      gain(point, tpotP99),
      number(over(point, ttftP50).mean, 1, 'ms'),
      number(over(point, run => run.activeExperts).mean, 1),
      number(over(point, batchOf).mean, 1),
    ]),
  }
}

function chart(loads: readonly LoadPoints[], title: string, y: string, value: Value): ExhibitChart {
  return {
    kind: 'lines',
    title,
    x: 'requests per second',
    y,
    series: loads[0]!.points.map(({ variant }) => ({
      label: variant,
      dashed: variant === 'union@true' || undefined,
      points: loads.map(({ points }) => {
        const point = variantOf(points, variant)!
        return { x: point.rate, y: over(point, value).mean }
      }),
    })),
  }
}

/** Changes are paired by seed, so their intervals are far narrower than those of the times. */
function gainChart(loads: readonly LoadPoints[]): ExhibitChart {
  const series = ['band', 'union'].flatMap(variant =>
    [tpotP50, tpotP99].map((value, metric) => ({
      label: `${variant}, ${metric === 0 ? 'p50' : 'p99'}`,
      dashed: metric === 1 || undefined,
      points: gains(loads, variant, value).map(({ mean: share, half }, at) => {
        const y = 100 * share
        return { x: loads[at]!.batch, y, ...ends(y, 100 * half) }
      }),
    })),
  )
  const rules = [{ y: 0, label: 'best load balancer' }]
  return {
    kind: 'lines',
    title: 'Change of TPOT against the best load balancer',
    x: 'mean batch under jsq',
    y: 'change (%)',
    series,
    rules,
  }
}

/**
 * Routing by label beats band at the median of the task mix and loses at the tail, so the finding says both.
 */
function domainAgainstBand(loads: readonly LoadPoints[]): string {
  const lower = (value: Value) => {
    const [domain, band] = ['domain', 'band'].map(variant => gains(loads, variant, value))
    return domain!.filter(({ mean: share }, at) => share < band![at]!.mean).length
  }
  if (!loads.every(({ points }) => variantOf(points, 'domain'))) return ''
  const all = loads.length
  return ` domain has a lower p50 than band at ${outOf(lower(tpotP50), all)} loads and a higher p99 at ${outOf(all - lower(tpotP99), all)}.`
}

/** A warning if more requests are in flight than the trace has. */
export function duplicatesWarning(points: readonly Point[], { evaluation }: Workload): string {
  const most = Math.max(...points.map(point => over(point, run => run.inflight).mean))
  if (most <= evaluation.requests) return ''
  return ` Up to ${fixed(most, 0)} requests are in flight and the trace has ${fixed(evaluation.requests, 0)}, so at the highest loads some trace rows run twice at once, which flatters every policy that uses experts.`
}

/** “−9.1 % / +3.2 %” for texts. */
export const pair = (p50: number, p99: number): string => `${signedPercent(p50)} / ${signedPercent(p99)}`
