/** The exhibits of a simulation's report. */
import type { SweepPoint } from '../sim/sweep.ts'
import type { Cell, Exhibit, ExhibitSeries, ExhibitTable } from './exhibit.ts'
import { fixed, percent } from './numbers.ts'
import {
  bestGainInWords,
  expertSeries,
  extremesInWords,
  gainChart,
  MIN_SHARE,
  rateChart,
} from './simulation-charts.ts'
import {
  BATCH,
  costMeasure,
  EXPERTS,
  FULLEST,
  GOODPUT,
  IMBALANCE,
  ITL,
  measured,
  type Measure,
  PREEMPTIONS,
  PREFIX_HITS,
  ratesOf,
  rateText,
  reasonShares,
  reasonsInWords,
  TOKENS,
  TPOT,
  TTFT,
} from './simulation-measures.ts'
import type { Simulated } from './simulation-tables.ts'

export interface RateExhibit {
  readonly id: string
  readonly title: string
  readonly measures: readonly Measure[]
  readonly source: string
  /** Which end is better (default: lowest). */
  readonly best?: 'highest'
}

/** Measures by rate. */
export function rateExhibit({ points }: Simulated, options: RateExhibit): Exhibit {
  const { id, title, measures, source, best } = options
  return {
    id,
    title,
    finding: measures.map(measure => extremesInWords(points, measure, best)).join(' '),
    source,
    charts: measures.map(measure => {
      const chart = rateChart(points, measure)
      return measures.length === 1 ? { ...chart, title } : chart
    }),
    tables: [],
  }
}

export function gainExhibit({ points, seeds }: Simulated, source: string): Exhibit | undefined {
  const measures = [TPOT.p50, TPOT.p99]
  const charts = measures.flatMap(measure => gainChart(points, measure) ?? [])
  const finding = measures.flatMap(measure => bestGainInWords(points, measure) ?? []).join(' ')
  if (charts.length === 0) return undefined
  return {
    id: 'gain',
    title: 'Change against the best load balancer',
    finding,
    source: `${source} The best load balancer is chosen separately for each measure and rate; changes are paired by seed${seeds > 1 ? ', whiskers are 95 % confidence intervals' : ''}.`,
    charts,
    tables: [],
  }
}

export function expertExhibit({ points }: Simulated, source: string): Exhibit {
  const series = expertSeries(points)
  return {
    id: 'experts',
    title: 'Active experts by batch',
    finding: fewestExperts(series),
    source: `${source} Steps of all rates and seeds; batch sizes with less than ${percent(MIN_SHARE, 1)} of a policy’s steps are left out.`,
    charts: [
      {
        kind: 'lines',
        title: 'Active experts by batch',
        x: 'requests in the step',
        y: 'active experts, mean over layers',
        series,
      },
      ...(isSplit(points)
        ? [
            {
              ...rateChart(points, FULLEST),
              title: 'Active experts on the fullest rank, which determines the step time',
            },
          ]
        : []),
    ],
    tables: [],
  }
}

/** True if experts are on several ranks. */
const isSplit = (points: readonly SweepPoint[]): boolean =>
  points.some(({ runs }) => runs.some(run => run.fullestRankExperts !== run.activeExperts))

/** At the largest batch size that all policies have. */
function fewestExperts(series: readonly ExhibitSeries[]): string {
  const batches = series.map(({ points }) => new Map(points.map(({ x, y }) => [x, y])))
  const common = [...(batches[0]?.keys() ?? [])].findLast(batch => batches.every(of => of.has(batch)))
  if (common === undefined) return 'No batch size occurs often enough under every policy.'
  const rising = series
    .map(({ label }, at) => ({ label, active: batches[at]!.get(common)! }))
    .sort((a, b) => a.active - b.active)
  const words = rising.map(({ label, active }) => `${label} ${fixed(active, 1)}`).join(', ')
  return `In a step of ${common} ${common === 1 ? 'request' : 'requests'}: ${words}.`
}

/** A table of the policies with several reasons; policies with one reason are listed. */
export function reasonExhibit({ points }: Simulated, source: string): Exhibit {
  const top = ratesOf(points).at(-1)!
  const sharesOf = new Map(points.map(point => [point, reasonShares(point)]))
  const several = new Set(
    points.filter(point => sharesOf.get(point)!.length > 1).map(({ variant }) => variant),
  )
  const shown = byRate(points).filter(({ variant }) => several.has(variant))
  const reasons = [...new Set(shown.flatMap(point => sharesOf.get(point)!.map(({ reason }) => reason)))]
  const share = (point: SweepPoint, reason: string): Cell => {
    const found = sharesOf.get(point)!.find(one => one.reason === reason)
    return found === undefined ? null : { value: 100 * found.share, digits: 1, unit: '%' }
  }
  const atTop = (isShown: boolean) =>
    points.filter(({ rate, variant }) => rate === top && several.has(variant) === isShown)
  const words = atTop(true)
    .map(point => `${point.variant}: ${reasonsInWords(point)}`)
    .join('; ')
  const single = atTop(false)
    .map(point => `${point.variant}: ${sharesOf.get(point)![0]?.reason ?? 'none'}`)
    .join(', ')
  return {
    id: 'reasons',
    title: 'Reasons of decisions',
    finding:
      several.size === 0
        ? `Every policy has a single reason: ${single}.`
        : `At ${rateText(top)} requests per second: ${words}.`,
    source: `${source}${several.size === 0 || single === '' ? '' : ` Policies with one reason: ${single}.`}`,
    charts: [],
    tables:
      several.size === 0
        ? []
        : [
            {
              columns: ['policy', 'requests/s', ...reasons],
              rows: shown.map(point => [
                point.variant,
                rateCell(point),
                ...reasons.map(reason => share(point, reason)),
              ]),
            },
          ],
  }
}

const rateCell = ({ rate }: SweepPoint): Cell => ({ value: rate, digits: Number.isInteger(rate) ? 0 : 2 })
const byRate = (points: readonly SweepPoint[]) => points.toSorted((a, b) => a.rate - b.rate)

export function numberExhibit(simulated: Simulated, source: string): Exhibit {
  const { points, study, pricePerGpuHour } = simulated
  const runs = points.flatMap(point => point.runs)
  const some = (measure: Measure) => runs.some(run => measure.of(run) > 0)
  const prefill = runs.some(run => run.ttftMs !== null)
  return {
    id: 'numbers',
    title: 'All numbers',
    finding: 'Means over seeds; ± is the 95 % confidence interval, with more than one seed.',
    source,
    charts: [],
    tables: [
      numberTable('Latency', points, [
        TPOT.p50,
        TPOT.p90,
        TPOT.p99,
        ITL.p50,
        ITL.p99,
        ...(prefill ? [TTFT.p50, TTFT.p99] : []),
      ]),
      numberTable('Load and cost', points, [
        EXPERTS,
        ...(isSplit(points) ? [FULLEST] : []),
        BATCH,
        IMBALANCE,
        TOKENS,
        costMeasure(pricePerGpuHour),
        ...(study.slo === undefined ? [] : [GOODPUT]),
        ...[PREFIX_HITS, PREEMPTIONS].filter(some),
      ]),
    ],
  }
}

function numberTable(
  title: string,
  points: readonly SweepPoint[],
  measures: readonly Measure[],
): ExhibitTable {
  const cell = (point: SweepPoint, measure: Measure): Cell => {
    const { unit: _, ...number } = measured(point, measure)
    return number
  }
  return {
    title,
    columns: [
      'policy',
      'requests/s',
      ...measures.map(({ name, unit }) => (unit === undefined ? name : `${name} (${unit})`)),
    ],
    rows: byRate(points).map(point => [
      point.variant,
      rateCell(point),
      ...measures.map(measure => cell(point, measure)),
    ]),
  }
}
