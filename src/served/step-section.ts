/** Section of docs/evidence/gpu.md on the time of a step against its distinct experts, and its figure. */
import type { CostProfile } from '../cost/profile.ts'
import { leastSquares } from '../math/least-squares.ts'
import { figureOf } from '../report/figure.ts'
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, many } from '../report/numbers.ts'
import { type ScatterLine, type ScatterPoint, scatterPlot, thinned } from '../report/scatter-plot.ts'
import { studentT } from '../sim/confidence.ts'
import { fullBatchSteps } from './full-batch.ts'
import { type KneeFit, kneeFit } from './knee-fit.ts'
import { completeRuns, type ResultOf, type ServedResult, type ServedSteps } from './result-file.ts'

export const STEP_FIGURE = 'gpu-steps.svg'
/** Points in the figure; the regression has all of them. */
const MAX_POINTS = 2_000

/** Recorded steps under one condition, with their line. */
interface StepGroup {
  readonly label: string
  readonly model: ServedResult['model']
  readonly engines: number
  readonly experts: readonly number[]
  readonly ms: readonly number[]
  /** Experts of the fitted points, between which the line is drawn. */
  readonly fitted: readonly number[]
  readonly fit: KneeFit
  /** Several engines: ms per expert of an engine's own, within a run. */
  readonly own?: number
}

/** `alone`: profile of the engine that the policies were run with. */
export function stepSection(results: readonly ServedResult[], alone?: CostProfile): string[] {
  const groups = stepGroups(results)
  if (groups.length === 0) return []
  return [
    '## Step time and distinct experts, GPU-served',
    `![Time of a decode step by distinct experts](../pictures/${STEP_FIGURE})`,
    'Steps that vLLM ran, from the end of one to the end of the next; the figure shows some of them. An engine alone: a fit of least absolute deviations over the recorded steps of a full batch. Below the *knee* the host takes longer than the device, and experts cost nothing. Several engines: a regression of the mean time over the mean experts of whole runs, in which all engines change together. *Bandwidth*: bytes of one more expert in every layer of every engine, divided by the time that it adds to a step.',
    markdownTable(
      ['engines on the GPU', 'points', 'ms per expert', 'ms at 0 experts', 'knee', 'r²', 'bandwidth TB/s'],
      1,
      groups.map(group => {
        const { label, engines, fit } = group
        const { slope, slopeError, intercept, knee, r2, count } = fit
        return [
          label,
          many(count, engines === 1 ? 'step' : 'run'),
          `${fixed(slope, 4)} ± ${fixed(studentT(count - 2) * slopeError, 4)}`,
          fixed(intercept, 2),
          knee === undefined ? 'none' : `${fixed(knee.x, 0)} experts, ${fixed(knee.level, 2)} ms`,
          fixed(r2, 2),
          fixed(bandwidthOf(group), 2),
        ]
      }),
    ),
    ...aboveNominal(groups, results),
    ...groups.flatMap(sharingInWords),
    ...sumsInWords(groups, alone),
    ...slopesInWords(groups, alone),
  ]
}

/** TB/s, from the vendor's data sheet. */
const NOMINAL: readonly (readonly [string, number])[] = [['H200', 4.8]]

const bandwidthOf = ({ engines, model, fit }: StepGroup): number =>
  (engines * model.layers * (model.bytesPerExpert ?? NaN)) / (fit.slope * 1e-3) / 1e12

function aboveNominal(groups: readonly StepGroup[], results: readonly ServedResult[]): string[] {
  const shared = groups.filter(({ engines }) => engines > 1)
  const found = NOMINAL.find(([name]) => results[0]?.conditions.gpu.name.includes(name))
  if (found === undefined || !shared.some(group => bandwidthOf(group) > 0.99 * found[1])) return []
  return [
    `The nominal bandwidth of an ${found[0]} is ${fixed(found[1], 1)} TB/s. The figures of several engines reach or exceed it, so they are not bandwidths that the memory reached: they are the slope between runs of different load. The likely reason is that the other part of a step shrinks as experts increase (fuller engines leave the device idle less often), which makes the slope too small.`,
  ]
}

/**
 * Engines that take turns wait for the experts of all; engines with equal bandwidth pay for their own alone,
 * K times. So the effect of an engine's own experts within a run, divided by that of all engines' experts, is
 * 1/K or 1.
 */
function sharingInWords({ engines, fit, own }: StepGroup): string[] {
  if (own === undefined) return []
  const share = own / fit.slope
  const rule =
    share < (1 + 1 / engines) / 2 ? 'they take turns (`layer`)' : 'they share bandwidth (`bandwidth`)'
  return [
    `How ${engines} engines share the GPU: one more expert of its own adds ${fixed(own, 3)} ms to an engine's step, one more of every engine ${fixed(fit.slope, 3)} ms, a share of ${fixed(share, 2)}. Taking turns layer by layer gives ${fixed(1 / engines, 2)}, equal bandwidth 1.00: ${rule}.`,
  ]
}

/** Whether the device parts of the engines add up to the step of all. */
function sumsInWords(groups: readonly StepGroup[], alone: CostProfile | undefined): string[] {
  const shared = groups.filter(({ engines }) => engines > 1)
  if (shared.length === 0 || alone === undefined) return []
  const { baseUs, perActiveExpertUs } = alone.decode
  const sums = shared.map(({ engines, fit }) => {
    const slope = (engines * alone.shape.layers * perActiveExpertUs) / 1000
    const base = (engines * baseUs) / 1000
    return { engines, fit, slope, base }
  })
  const addsUp = sums.every(({ fit, slope }) => Math.abs(fit.slope / slope - 1) < 0.1)
  const isLess = sums.every(({ fit, base }) => fit.intercept < 0.9 * base)
  return [
    [
      ...sums.map(
        ({ engines, fit, slope, base }) =>
          `Summed over ${engines} engines, the device part of \`${alone.name}\` is ${fixed(slope, 3)} ms per expert and ${fixed(base, 1)} ms besides; ${engines} engines at once took ${fixed(fit.slope, 3)} and ${fixed(fit.intercept, 1)}.`,
      ),
      `The time for experts ${addsUp ? 'is the sum of' : 'differs from the sum of'} what the engines take alone.`,
      ...(isLess
        ? [
            'The time besides is shorter than the sum, and the simulator takes the sum, so its steps are too long. A part of this time may be waiting, during which other engines can use the device; that was not measured.',
          ]
        : []),
    ].join(' '),
  ]
}

/** Why the table and the profile have two slopes for one engine. */
function slopesInWords(groups: readonly StepGroup[], alone: CostProfile | undefined): string[] {
  const one = groups.find(({ engines }) => engines === 1)
  if (one === undefined || alone === undefined) return []
  const { perActiveExpertUs } = alone.decode
  const profileMs = (alone.shape.layers * perActiveExpertUs) / 1000
  return [
    `The table has ${fixed(one.fit.slope, 4)} ms per expert for one engine, and \`${alone.name}\` ${fixed(profileMs, 4)} (${fixed(perActiveExpertUs, 2)} µs × ${alone.shape.layers} layers), because the profile counts requests and context apart, while here they grow with the experts and are part of the slope.`,
  ]
}

/** Undefined if no steps were recorded. */
export function stepFigure(results: readonly ServedResult[]): string | undefined {
  const groups = stepGroups(results)
  if (groups.length === 0) return undefined
  const title = 'Time of a decode step by distinct experts'
  const description = groups
    .map(({ label, fit }) => `${label}: ${fixed(fit.slope, 3)} ms per expert.`)
    .join(' ')
  const points = groups.flatMap(({ experts, ms }, group) => {
    const all: ScatterPoint[] = experts.map((x, i) => ({ x, y: ms[i]!, group }))
    return thinned(all, Math.floor(MAX_POINTS / groups.length))
  })
  const body = scatterPlot({
    id: 'gpu-steps',
    title,
    description,
    x: { label: 'distinct experts of a step, mean over the layers' },
    y: { label: 'time of the step, ms', from: 0 },
    points,
    lines: groups.flatMap(({ fitted, fit }, group) => linesOf(fit, minOf(fitted), maxOf(fitted), group)),
  })
  return figureOf({ title, description, legend: groups.map(({ label }) => label), body })
}

function linesOf(
  { slope, intercept, knee }: KneeFit,
  low: number,
  high: number,
  group: number,
): ScatterLine[] {
  const at = (x: number) => ({ x, y: intercept + slope * x })
  if (knee === undefined) return [{ group, from: at(low), to: at(high) }]
  const bend = { x: knee.x, y: knee.level }
  return [
    { group, from: { x: low, y: knee.level }, to: bend },
    { group, from: bend, to: at(high) },
  ]
}

/**
 * One engine alone first, then several, in ascending number; of the model that the policies were run with.
 */
function stepGroups(results: readonly ServedResult[]): StepGroup[] {
  const served = results.filter((result): result is ResultOf<'served'> => result.kind === 'served')
  const shape = [...served, ...results][0]?.model.name
  const alone = results
    .filter((result): result is ResultOf<'profile'> => result.kind === 'profile')
    .filter(({ model, profile }) => model.name === shape && (profile.engines ?? 1) === 1)
  const counts = [...new Set(served.map(one => one.served.decoders))].sort((a, b) => a - b)
  return [
    ...(alone.length === 0 ? [] : [aloneGroup(alone)]),
    ...counts.flatMap(engines => sharedGroup(served.filter(one => one.served.decoders === engines))),
  ]
}

function aloneGroup(results: readonly ResultOf<'profile'>[]): StepGroup {
  const steps = results.map(({ profile }) => usual(fullBatchSteps(profile)))
  const [experts, ms] = [steps.flatMap(one => one.experts), steps.flatMap(one => one.ms)]
  const { model } = results[0]!
  return {
    label: 'one engine alone',
    model,
    engines: 1,
    experts,
    ms,
    fitted: experts,
    fit: kneeFit(experts, ms),
  }
}

/** Runs needed for their line. */
const MIN_RUNS = 6

function sharedGroup(results: readonly ResultOf<'served'>[]): StepGroup[] {
  const runs = results.flatMap(completeRuns)
  const steps = runs.flatMap(run => (run.steps === undefined ? [] : [usual(run.steps)]))
  if (runs.length < MIN_RUNS || steps.length === 0) return []
  const means = { x: runs.map(run => run.together.experts), y: runs.map(run => run.tpotMs.mean) }
  const line = leastSquares([means.x.map(() => 1), means.x], means.y)
  const { model, served } = results[0]!
  return [
    {
      label: many(served.decoders, 'engine'),
      model,
      engines: served.decoders,
      experts: steps.flatMap(one => one.experts),
      ms: steps.flatMap(one => one.ms),
      fitted: means.x,
      fit: {
        slope: line.coefficients[1]!,
        slopeError: line.errors[1]!,
        intercept: line.coefficients[0]!,
        r2: line.r2,
        count: line.count,
      },
      own: slopeWithin(steps),
    },
  ]
}

/** Slope over the steps of a run, each relative to the means of its run. */
function slopeWithin(runs: readonly { readonly experts: number[]; readonly ms: number[] }[]): number {
  let [products, squares] = [0, 0]
  for (const { experts, ms } of runs) {
    const [meanExperts, meanMs] = [meanOf(experts), meanOf(ms)]
    experts.forEach((value, i) => {
      products += (value - meanExperts) * (ms[i]! - meanMs)
      squares += (value - meanExperts) ** 2
    })
  }
  return products / squares
}

const meanOf = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length

/** Without steps of more than twice the median time, in which the engine paused. */
function usual({ experts, ms }: ServedSteps): { readonly experts: number[]; readonly ms: number[] } {
  const median = [...ms].sort((a, b) => a - b)[Math.floor(ms.length / 2)]!
  const kept = ms.flatMap((value, i) => (value <= 2 * median ? [i] : []))
  return { experts: kept.map(i => experts[i]!), ms: kept.map(i => ms[i]!) }
}

// Spreading a long array into Math.max overflows the stack.
const maxOf = (values: readonly number[]) => values.reduce((a, b) => Math.max(a, b), -Infinity)
const minOf = (values: readonly number[]) => values.reduce((a, b) => Math.min(a, b), Infinity)
