/** Charts and findings of a simulation: by rate, against load balancers, by batch. */
import { bestBalancer, gainOf } from '../sim/compare.ts'
import type { SweepPoint } from '../sim/sweep.ts'
import type { ExhibitBar, ExhibitChart, ExhibitNumber, ExhibitSeries } from './exhibit.ts'
import { numberText } from './exhibit-cells.ts'
import { changeText, measured, type Measure, ratesOf, rateText, variantsOf } from './simulation-measures.ts'

const EVERY = 'every policy'
/** Minimum share of a policy's steps for a batch size; rarer sizes are noise. */
export const MIN_SHARE = 0.005

const labelOf = ({ name, axis = name, unit }: Measure): string =>
  unit === undefined ? axis : `${axis} (${unit})`
const ofVariant = (points: readonly SweepPoint[], variant: string) =>
  points.filter(point => point.variant === variant).sort((a, b) => a.rate - b.rate)

/** Lines by rate with confidence bands, or bars for a single rate. Identical policies are drawn as one. */
export function rateChart(points: readonly SweepPoint[], measure: Measure): ExhibitChart {
  const variants = isSameForAll(points, measure) ? variantsOf(points).slice(0, 1) : variantsOf(points)
  const named = (variant: string) => (variants.length < variantsOf(points).length ? EVERY : variant)
  if (ratesOf(points).length === 1) {
    const bars = variants.map((variant): ExhibitBar =>
      barOf(named(variant), measured(ofVariant(points, variant)[0]!, measure), 0, measure.max),
    )
    return { kind: 'bars', title: measure.name, x: labelOf(measure), groups: [{ bars }] }
  }
  const series = variants.map((variant): ExhibitSeries => ({
    label: named(variant),
    points: ofVariant(points, variant).map(point =>
      pointOf(point.rate, measured(point, measure), measure.max),
    ),
  }))
  return { kind: 'lines', title: measure.name, x: 'requests per second', y: labelOf(measure), series }
}

/** Ends of the confidence interval, clipped to possible values. */
function rangeOf(
  { value, half }: ExhibitNumber,
  min: number,
  max = Infinity,
): { low?: number; high?: number } {
  return half === undefined ? {} : { low: Math.max(min, value - half), high: Math.min(max, value + half) }
}

function pointOf(x: number, number: ExhibitNumber, max: number | undefined): ExhibitSeries['points'][number] {
  return { x, y: number.value, ...rangeOf(number, 0, max) }
}

function barOf(label: string, number: ExhibitNumber, min: number, max?: number): ExhibitBar {
  const { value, digits, unit } = number
  return { label, value, digits, unit, ...rangeOf(number, min, max) }
}

/** True if no policy changes the measure; such values are bit-identical. */
function isSameForAll(points: readonly SweepPoint[], measure: Measure): boolean {
  const [first, ...others] = variantsOf(points).map(variant =>
    ofVariant(points, variant).map(point => measured(point, measure).value),
  )
  return others.length > 0 && others.every(values => values.every((value, at) => value === first![at]))
}

/**
 * The policies with the lowest and highest value at the highest rate, unless their confidence intervals
 * overlap.
 */
export function extremesInWords(
  points: readonly SweepPoint[],
  measure: Measure,
  best: 'lowest' | 'highest' = 'lowest',
): string {
  const rate = ratesOf(points).at(-1)!
  const there = points
    .filter(point => point.rate === rate)
    .map(point => ({ variant: point.variant, ...measured(point, measure) }))
  const rising = there.filter(({ value }) => Number.isFinite(value)).sort((a, b) => a.value - b.value)
  const [low, high] = [rising[0], rising.at(-1)]
  if (low === undefined || high === undefined)
    return `At ${rateText(rate)} requests per second: no measurement.`
  const shown = (number: ExhibitNumber) => numberText({ ...number, half: NaN })
  if (shown(low) === shown(high))
    return `At ${rateText(rate)} requests per second ${there.length > 1 ? EVERY : low.variant} has ${measure.name} ${shown(low)}.`
  if (low.value + (low.half ?? 0) > high.value - (high.half ?? 0))
    return `At ${rateText(rate)} requests per second ${measure.name} is ${shown(low)} to ${shown(high)}: the confidence intervals of the policies overlap.`
  const [first, last, other] = best === 'lowest' ? [low, high, 'highest'] : [high, low, 'lowest']
  return `At ${rateText(rate)} requests per second ${first.variant} has the ${best} ${measure.name} (${shown(first)}), ${last.variant} the ${other} (${shown(last)}).`
}

/**
 * Changes against the best load balancer at each rate; undefined without load balancers or other policies.
 */
export function gainChart(points: readonly SweepPoint[], measure: Measure): ExhibitChart | undefined {
  const groups = ratesOf(points).flatMap(rate => {
    const there = points.filter(point => point.rate === rate)
    const base = bestBalancer(there, measure.of)
    const bars = there.flatMap(point => {
      const gain = gainOf(there, point, measure.of)
      return gain === undefined ? [] : [barOf(point.variant, changeText(gain), -100)]
    })
    return base === undefined || bars.length === 0
      ? []
      : [{ heading: `${rateText(rate)} requests per second, against ${base.variant}`, bars }]
  })
  if (groups.length === 0) return undefined
  return { kind: 'bars', title: measure.name, x: `change of ${measure.name} (%); lower is better`, groups }
}

/** The policy with the largest improvement, at its best rate. */
export function bestGainInWords(points: readonly SweepPoint[], measure: Measure): string | undefined {
  const gains = points.flatMap(point => {
    const there = points.filter(({ rate }) => rate === point.rate)
    const gain = gainOf(there, point, measure.of)
    const base = bestBalancer(there, measure.of)
    return gain === undefined || base === undefined || !Number.isFinite(gain.mean)
      ? []
      : [{ point, gain, base }]
  })
  if (gains.length === 0) return undefined
  const { point, gain, base } = gains.reduce((best, one) => (one.gain.mean < best.gain.mean ? one : best))
  const change = numberText(changeText(gain))
  if (gain.mean >= 0) return `No policy has a lower ${measure.name} than the best load balancer.`
  return `${point.variant} changes ${measure.name} by ${change} at ${rateText(point.rate)} requests per second, against ${base.variant}.`
}

/** Active experts of a step by batch size, over all seeds and rates. */
export function expertSeries(points: readonly SweepPoint[]): ExhibitSeries[] {
  return variantsOf(points).map(variant => {
    const steps = new Map<number, { steps: number; active: number }>()
    for (const one of ofVariant(points, variant).flatMap(({ runs }) =>
      runs.flatMap(run => run.activeByBatch),
    )) {
      const sum = steps.get(one.batch) ?? { steps: 0, active: 0 }
      steps.set(one.batch, { steps: sum.steps + one.steps, active: sum.active + one.active * one.steps })
    }
    const all = [...steps.values()].reduce((sum, one) => sum + one.steps, 0)
    const enough = [...steps].filter(([, sum]) => sum.steps >= MIN_SHARE * all).sort(([a], [b]) => a - b)
    return { label: variant, points: enough.map(([batch, sum]) => ({ x: batch, y: sum.active / sum.steps })) }
  })
}
