/**
 * Targets set from the prototype's figures, and which loads meet them. Checked against the numbers as tables
 * print them.
 */
import type { ExhibitNumber, ExhibitTable } from '../report/exhibit.ts'
import { gainOf } from '../sim/compare.ts'
import type { Interval } from '../sim/confidence.ts'
import { over } from '../sim/sweep.ts'
import { tpotP50, tpotP99, type Value } from './cells.ts'
import type { Workload } from './fits.ts'
import { type LoadPoints, variantOf } from './main-results.ts'
import { type Figures, prototypeFigures } from './prototype-figures.ts'
import { shown } from './rounded.ts'
import type { WorkloadName } from './traces.ts'
import { number, outOf } from './words.ts'

/** Changes in percent against the best load balancer. */
export interface Gains {
  readonly p50: Interval
  readonly p99: Interval
}

/** One load of a setting, with all that the targets need. */
export interface Judged {
  readonly workload: WorkloadName
  readonly batch: number
  readonly band: Gains
  readonly union: Gains
  /** Median of union@all and union@true; NaN if not run. */
  readonly unionAll: number
  readonly unionTrue: number
  /** Figures of the prototype. */
  readonly prototype: { readonly band: Figures; readonly union: Figures }
  /** Requests in flight under band, and rows of the trace. */
  readonly inflight: number
  readonly rows: number
  readonly calibration: number
}

export interface Target {
  readonly words: string
  readonly columns: readonly [value: string, verdict: string]
  readonly value: (of: Judged) => ExhibitNumber
  /** “met”, or how it is missed. */
  readonly verdict: (of: Judged) => string
}

/** All loads of one setting. */
export interface Judgement {
  readonly setting: string
  readonly judged: readonly Judged[]
}

const MET = 'met'
const WITHIN = 2
const MIN_SHARE = 90
const MIN_DISTANCE = -5
const maxAbove = (batch: number): number => (batch <= 10 ? 2 : 1)

/** Points below (−) or above the prototype's range; 0 inside it. One digit, as quoted. */
export function fromPrototype({ band, prototype }: Judged, metric: keyof Gains): number {
  const ours = shown(band[metric].mean, 1)
  const [low, high] = prototype.band[metric].ends
  return shown(ours < low ? ours - low : ours > high ? ours - high : 0, 1)
}

export const isOutside = (of: Judged, metric: keyof Gains): boolean =>
  Math.abs(fromPrototype(of, metric)) > WITHIN

/** True if the interval over seeds reaches into the target. */
export const isWithinChance = (of: Judged, metric: keyof Gains): boolean =>
  Math.abs(fromPrototype(of, metric)) <= WITHIN + (of.band[metric].half || 0)

const nearPrototype = (metric: keyof Gains): Target => ({
  words: `band’s ${metric} within ${WITHIN} points of the prototype’s`,
  columns: [`band ${metric} minus prototype (points)`, `within ${WITHIN}`],
  value: of => ({ ...number(fromPrototype(of, metric), 1), signed: true }),
  verdict: of => (isOutside(of, metric) ? (fromPrototype(of, metric) < 0 ? 'lower' : 'higher') : MET),
})

export const shareOf = ({ union, unionTrue }: Judged): number => shown((100 * union.p50.mean) / unionTrue, 2)
const minusBand = ({ union, band }: Judged, metric: keyof Gains): number =>
  shown(union[metric].mean - band[metric].mean, 2)

export const NEAR_PROTOTYPE: readonly Target[] = [nearPrototype('p50'), nearPrototype('p99')]

export const KEEPS_GAIN: Target = {
  words: `union keeps ${MIN_SHARE} % of the median gain with true patterns`,
  columns: ['union’s share of the p50 gain with true patterns', `≥ ${MIN_SHARE} %`],
  value: of => number(shareOf(of), 2, '%'),
  verdict: of => (shareOf(of) >= MIN_SHARE ? MET : 'missed'),
}

export const LOWERS_TAIL: Target = {
  words: `union’s p99 at least ${-MIN_DISTANCE} points below band’s`,
  columns: ['union’s p99 minus band’s (points)', `≤ −${-MIN_DISTANCE}`],
  value: of => ({ ...number(minusBand(of, 'p99'), 2), signed: true }),
  verdict: of => (minusBand(of, 'p99') <= MIN_DISTANCE ? MET : 'missed'),
}

export const KEEPS_MEDIAN: Target = {
  words: 'union’s median at most 1 point above band’s (2 at batch 10)',
  columns: ['union’s p50 minus band’s (points)', '≤ +1 (+2 at batch 10)'],
  value: of => ({ ...number(minusBand(of, 'p50'), 2), signed: true }),
  verdict: of => (minusBand(of, 'p50') <= maxAbove(of.batch) ? MET : 'missed'),
}

export const ALL_TARGETS: readonly Target[] = [...NEAR_PROTOTYPE, KEEPS_GAIN, LOWERS_TAIL, KEEPS_MEDIAN]
/** Targets that need neither the prototype's step cost nor true patterns. */
export const OWN_TARGETS: readonly Target[] = [LOWERS_TAIL, KEEPS_MEDIAN]

export function judge(
  { workload, evaluation, calibration }: Workload,
  { batch, points }: LoadPoints,
): Judged {
  const gain = (variant: string, value: Value): Interval => {
    const point = variantOf(points, variant)
    const of = point && gainOf(points, point, value)
    return { mean: 100 * (of?.mean ?? NaN), half: 100 * (of?.half ?? NaN), count: of?.count ?? 0 }
  }
  const gains = (variant: string): Gains => ({ p50: gain(variant, tpotP50), p99: gain(variant, tpotP99) })
  return {
    workload,
    batch,
    band: gains('band'),
    union: gains('union'),
    unionAll: gain('union@all', tpotP50).mean,
    unionTrue: gain('union@true', tpotP50).mean,
    prototype: {
      band: prototypeFigures(workload, batch, 'band')!,
      union: prototypeFigures(workload, batch, 'union')!,
    },
    inflight: over(variantOf(points, 'band')!, run => run.inflight).mean,
    rows: evaluation.requests,
    calibration: calibration.requests,
  }
}

export const missedIn = (target: Target, judged: readonly Judged[]): Judged[] =>
  judged.filter(of => target.verdict(of) !== MET)

export const named = (loads: readonly Judged[], about: (of: Judged) => string = () => ''): string =>
  loads.map(of => `${of.workload} ${of.batch}${about(of)}`).join(', ')

/** “all loads” if all are listed. */
export const namedOf = (loads: readonly Judged[], all: readonly Judged[]): string =>
  loads.length === all.length ? 'all loads' : named(loads)

/** “8P16D: a is met in all 8 loads; b in 2 of the 8 (missed: task 10, lang 20).” */
export function verdicts({ setting, judged }: Judgement, targets: readonly Target[]): string {
  const says = targets.map(target => {
    const missed = missedIn(target, judged)
    const how = (of: Judged) => (target.verdict(of) === 'missed' ? '' : ` ${target.verdict(of)}`)
    return `${target.words}: ${outOf(judged.length - missed.length, judged.length)}${missed.length > 0 && !(missed.length === judged.length && missed.every(of => how(of) === '')) ? ` (missed: ${named(missed, how)})` : ''}`
  })
  return `${setting}, loads that meet each target: ${says.join('; ')}.`
}

export function targetTable({ setting, judged }: Judgement, targets: readonly Target[]): ExhibitTable {
  return {
    title: `${setting}: targets`,
    columns: ['load', ...targets.flatMap(({ columns }) => columns)],
    rows: judged.map(of => [
      `${of.workload}, batch ${of.batch}`,
      ...targets.flatMap(target => [target.value(of), target.verdict(of)]),
    ]),
  }
}
