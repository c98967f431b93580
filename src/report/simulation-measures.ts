/** Measures of a simulation in tables and reports: names, digits and units. */
import type { Interval } from '../sim/confidence.ts'
import type { SimulationResult } from '../sim/result.ts'
import { over, type SweepPoint } from '../sim/sweep.ts'
import { costPerMillionTokens, parseTopology } from '../sim/topology.ts'
import type { ExhibitNumber } from './exhibit.ts'
import { fixed, percent } from './numbers.ts'

export interface Measure {
  /** Column title. */
  readonly name: string
  /** Axis label without unit (default: the name). */
  readonly axis?: string
  readonly unit?: string
  readonly digits: number
  /** Upper bound of values and intervals; the lower bound is 0. */
  readonly max?: number
  of(run: SimulationResult): number
}

const ms = (name: string, digits: number, of: Measure['of']): Measure => ({ name, unit: 'ms', digits, of })

export const TPOT = {
  p50: ms('TPOT p50', 2, run => run.tpotMs.p50),
  p90: ms('TPOT p90', 2, run => run.tpotMs.p90),
  p99: ms('TPOT p99', 2, run => run.tpotMs.p99),
} as const
export const ITL = {
  p50: ms('ITL p50', 2, run => run.itlMs.p50),
  p99: ms('ITL p99', 2, run => run.itlMs.p99),
} as const
/** NaN without prefill. */
export const TTFT = {
  p50: ms('TTFT p50', 1, run => run.ttftMs?.p50 ?? NaN),
  p99: ms('TTFT p99', 1, run => run.ttftMs?.p99 ?? NaN),
} as const
export const EXPERTS: Measure = {
  name: 'experts',
  axis: 'active experts',
  digits: 1,
  of: run => run.activeExperts,
}
export const FULLEST: Measure = {
  name: 'fullest rank',
  axis: 'active experts on the fullest rank',
  digits: 1,
  of: run => run.fullestRankExperts,
}
export const BATCH: Measure = { name: 'batch', digits: 1, of: run => run.batch }
export const IMBALANCE: Measure = {
  name: 'imbalance',
  axis: 'fullest worker over the mean',
  digits: 2,
  of: run => run.imbalance.inflight,
}
export const TOKENS: Measure = {
  name: 'tokens/s',
  axis: 'tokens per second',
  digits: 0,
  of: run => run.tokensPerSecond,
}
export const GOODPUT: Measure = {
  name: 'goodput',
  axis: 'requests within the SLO',
  unit: '%',
  digits: 1,
  max: 100,
  of: run => 100 * run.goodput.share,
}
export const PREFIX_HITS: Measure = {
  name: 'prefix hits',
  unit: '%',
  digits: 1,
  of: run => 100 * (run.prefixHitShare ?? NaN),
}
export const PREEMPTIONS: Measure = { name: 'preemptions', digits: 0, of: run => run.preemptions }

/** Cost of the whole cluster including prefill. */
export function costMeasure(pricePerGpuHour: number): Measure {
  return {
    name: '$/M tokens',
    axis: '$ per million tokens',
    digits: 3,
    of: run => costPerMillionTokens(parseTopology(run.topology), pricePerGpuHour, run.tokensPerSecond),
  }
}

export function measured(point: SweepPoint, { of, digits, unit }: Measure): ExhibitNumber {
  const { mean, half } = over(point, of)
  return { value: mean, digits, unit, half: Number.isFinite(half) ? half : undefined }
}

/** A relative change in percent. */
export function changeText({ mean, half }: Interval): ExhibitNumber {
  return {
    value: 100 * mean,
    digits: 1,
    unit: '%',
    signed: true,
    half: Number.isFinite(half) ? 100 * half : undefined,
  }
}

/** Share of each reason in all decisions, most frequent first. */
export function reasonShares({ runs }: SweepPoint): { readonly reason: string; readonly share: number }[] {
  const counts = new Map<string, number>()
  for (const { reasons } of runs)
    for (const [reason, count] of Object.entries(reasons))
      counts.set(reason, (counts.get(reason) ?? 0) + count)
  const total = [...counts.values()].reduce((a, b) => a + b, 0)
  return [...counts]
    .map(([reason, count]) => ({ reason, share: count / total }))
    .sort((a, b) => b.share - a.share)
}

/** `band_hit 83 %, band_spill 17 %` */
export function reasonsInWords(point: SweepPoint): string {
  return reasonShares(point)
    .map(({ reason, share }) => `${reason} ${percent(share)}`)
    .join(', ')
}

/** `1,200`, `0.25` */
export const rateText = (rate: number): string => fixed(rate, Number.isInteger(rate) ? 0 : 2)
export const ratesOf = (points: readonly SweepPoint[]): number[] =>
  [...new Set(points.map(({ rate }) => rate))].sort((a, b) => a - b)
export const variantsOf = (points: readonly SweepPoint[]): string[] => [
  ...new Set(points.map(({ variant }) => variant)),
]
