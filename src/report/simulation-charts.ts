/** Charts and words of a simulation's numbers: over the rate, against the load balancers, over the batch. */
import { bestBalancer, gainOf } from '../sim/compare.ts'
import type { SweepPoint } from '../sim/sweep.ts'
import type { ExhibitBar, ExhibitChart, ExhibitNumber, ExhibitSeries } from './exhibit.ts'
import { numberText } from './exhibit-cells.ts'
import { changeText, measured, type Measure, ratesOf, rateText, variantsOf } from './simulation-measures.ts'

const EVERY = 'every policy'
/** Of a policy's steps: batches with fewer are some requests' own, and noise. */
export const LEAST_SHARE = 0.005

const labelOf = ({ name, axis = name, unit }: Measure): string =>
  unit === undefined ? axis : `${axis} (${unit})`
const ofVariant = (points: readonly SweepPoint[], variant: string) =>
  points.filter(point => point.variant === variant).sort((a, b) => a.rate - b.rate)

/** Lines over the rate with their confidence bands, or bars where there is one rate. Policies that are all alike are one line. */
export function rateChart(points: readonly SweepPoint[], measure: Measure): ExhibitChart {
  const variants = isSameForAll(points, measure) ? variantsOf(points).slice(0, 1) : variantsOf(points)
  const named = (variant: string) => (variants.length < variantsOf(points).length ? EVERY : variant)
  if (ratesOf(points).length === 1) {
    const bars = variants.map((variant): ExhibitBar =>
      barOf(named(variant), measured(ofVariant(points, variant)[0]!, measure), 0, measure.most),
    )
    return { kind: 'bars', title: measure.name, x: labelOf(measure), groups: [{ bars }] }
  }
  const series = variants.map((variant): ExhibitSeries => ({
    label: named(variant),
    points: ofVariant(points, variant).map(point =>
      pointOf(point.rate, measured(point, measure), measure.most),
    ),
  }))
  return { kind: 'lines', title: measure.name, x: 'requests a second', y: labelOf(measure), series }
}

/** Ends of the confidence interval, no further than values go. */
function rangeOf(
  { value, half }: ExhibitNumber,
  least: number,
  most = Infinity,
): { low?: number; high?: number } {
  return half === undefined ? {} : { low: Math.max(least, value - half), high: Math.min(most, value + half) }
}

function pointOf(
  x: number,
  number: ExhibitNumber,
  most: number | undefined,
): ExhibitSeries['points'][number] {
  return { x, y: number.value, ...rangeOf(number, 0, most) }
}

function barOf(label: string, number: ExhibitNumber, least: number, most?: number): ExhibitBar {
  const { value, digits, unit } = number
  return { label, value, digits, ...(unit !== undefined && { unit }), ...rangeOf(number, least, most) }
}

/** What no policy changes is the same to the bit. */
function isSameForAll(points: readonly SweepPoint[], measure: Measure): boolean {
  const [first, ...others] = variantsOf(points).map(variant =>
    ofVariant(points, variant).map(point => measured(point, measure).value),
  )
  return others.length > 0 && others.every(values => values.every((value, at) => value === first![at]))
}

/** Which policy has the least or the most, at the highest rate; none where the two lie within each other's confidence intervals. */
export function extremesInWords(
  points: readonly SweepPoint[],
  measure: Measure,
  best: 'least' | 'most' = 'least',
): string {
  const rate = ratesOf(points).at(-1)!
  const there = points
    .filter(point => point.rate === rate)
    .map(point => ({ variant: point.variant, ...measured(point, measure) }))
  const rising = there.filter(({ value }) => Number.isFinite(value)).sort((a, b) => a.value - b.value)
  const [low, high] = [rising[0], rising.at(-1)]
  if (low === undefined || high === undefined)
    return `At ${rateText(rate)} requests a second nothing was measured.`
  const shown = (number: ExhibitNumber) => numberText({ ...number, half: NaN })
  if (shown(low) === shown(high))
    return `At ${rateText(rate)} requests a second ${there.length > 1 ? EVERY : low.variant} has ${measure.name} ${shown(low)}.`
  if (low.value + (low.half ?? 0) > high.value - (high.half ?? 0))
    return `At ${rateText(rate)} requests a second ${measure.name} is ${shown(low)} to ${shown(high)}: policies differ by no more than their confidence intervals.`
  const [first, last, other] = best === 'least' ? [low, high, 'most'] : [high, low, 'least']
  return `At ${rateText(rate)} requests a second ${first.variant} has the ${best} ${measure.name}, ${shown(first)}, and ${last.variant} the ${other}, ${shown(last)}.`
}

/** Changes against the best load balancer of each rate; undefined when none was run or nothing else was. */
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
      : [{ heading: `${rateText(rate)} requests a second, against ${base.variant}`, bars }]
  })
  if (groups.length === 0) return undefined
  return { kind: 'bars', title: measure.name, x: `change of ${measure.name} (%); less is better`, groups }
}

/** The policy that changes a number most for the better, at the rate where it does. */
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
  if (gain.mean >= 0) return `No policy lowers ${measure.name} below that of the best load balancer.`
  return `${point.variant} changes ${measure.name} by ${change} at ${rateText(point.rate)} requests a second, against ${base.variant}.`
}

/** Distinct experts of a step by its batch: steps of all seeds and rates together. */
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
    const enough = [...steps].filter(([, sum]) => sum.steps >= LEAST_SHARE * all).sort(([a], [b]) => a - b)
    return { label: variant, points: enough.map(([batch, sum]) => ({ x: batch, y: sum.active / sum.steps })) }
  })
}
