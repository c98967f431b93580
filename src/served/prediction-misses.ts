/**
 * Why predictions of docs/evidence/gpu.md missed: a load that was known, steps that are predicted too long,
 * and engines that do not step at one pace.
 */
import { fixed, percent } from '../report/numbers.ts'
import { LOAD_BALANCERS } from '../sim/compare.ts'
import type { Interval } from '../sim/confidence.ts'
import { type EnginePace, enginePaces } from './engine-paces.ts'
import { BASE, meanOf, policiesOf } from './paired.ts'
import type { ServedExperiment } from './policy-section.ts'
import type { PredictedRun } from './prediction.ts'
import { completeRuns, type ServedRun } from './result-file.ts'
import { quantile } from './step-fit.ts'

/** How far the simulated change may be from the served one, in points. */
export const TOLERANCE_POINTS = 3
/** Measures by name. */
export const MEDIAN = 'TPOT p50'
export const TAIL = 'TPOT p99'

/** An experiment as served and as simulated. */
export interface Both {
  readonly load: string
  /** Policies whose result at this load was known from earlier runs when it was predicted. */
  readonly known: readonly string[]
  readonly runs: readonly ServedRun[]
  readonly before: readonly PredictedRun[]
  /** Empty if it was not simulated afterwards. */
  readonly after: readonly PredictedRun[]
}

export interface Compared {
  readonly load: string
  readonly policy: string
  readonly measure: string
  readonly isTpot: boolean
  readonly served: Interval
  readonly before: Simulated
  readonly after?: Simulated
}

export interface Simulated {
  readonly change: Interval
  /** Simulated minus served. */
  readonly points: number
}

export type OfCompared = (one: Compared) => Simulated | undefined

/** Changes of TPOT under policies that use experts. */
export function gainsOf(compared: readonly Compared[], of: OfCompared) {
  return compared.flatMap(one => {
    const simulated = of(one)
    const counts = one.isTpot && !LOAD_BALANCERS.includes(one.policy) && simulated !== undefined
    return counts ? [{ ...one, points: simulated.points }] : []
  })
}

/** Policies with experts in an earlier experiment at the same load. */
export function knownPolicies(experiment: ServedExperiment, all: readonly ServedExperiment[]): string[] {
  const { served, conditions } = experiment
  const earlier = all.filter(
    other =>
      other.served.decoders === served.decoders &&
      other.served.rate === served.rate &&
      other.conditions.date < conditions.date,
  )
  const own = policiesOf(completeRuns(experiment))
  return policiesOf(earlier.flatMap(completeRuns)).filter(
    policy => own.includes(policy) && !LOAD_BALANCERS.includes(policy),
  )
}

/** A load that was served before is hardly predicted: the count without it. */
export function repeated(all: readonly Both[], compared: readonly Compared[]): string[] {
  const again = all.filter(({ known }) => known.length > 0)
  if (again.length === 0) return []
  const loads = new Set(again.map(({ load }) => load))
  const others = gainsOf(
    compared.filter(({ load }) => !loads.has(load)),
    one => one.before,
  )
  const within = others.filter(one => Math.abs(one.points) <= TOLERANCE_POINTS).length
  const words = again.map(
    ({ load, known }) =>
      `“${load}” repeats a load whose result was known for ${known.join(' and ')} when it was predicted`,
  )
  return [`${words.join('; ')}. Without it: **${within} of ${others.length}**.`]
}

/** Points by which every gain at the median must be predicted too small to be explained together. */
const UNDER_POINTS = 2

/** Loads at which predicted steps are too long, so that batches are too large and gains too small. */
export function longSteps(all: readonly Both[], compared: readonly Compared[]): string[] {
  return all.flatMap(({ load, runs, before }) => {
    const medians = gainsOf(
      compared.filter(one => one.load === load && one.measure === MEDIAN),
      one => one.before,
    ).map(one => one.points)
    if (medians.length === 0 || medians.some(value => value < UNDER_POINTS)) return []
    const longer = policiesOf(before).map(
      policy =>
        meanOf(before, policy, run => run.tpotMs.p50) / meanOf(runs, policy, run => run.tpotMs.p50) - 1,
    )
    const batch = (of: readonly (PredictedRun | ServedRun)[]) =>
      fixed(
        meanOf(of, BASE, run => run.together.batch),
        1,
      )
    return [
      `With ${load}, every gain at the median is predicted too small, by ${fixed(Math.min(...medians), 1)} to ${fixed(Math.max(...medians), 1)} points. The predicted steps there are ${fixed(100 * Math.min(...longer), 0)} to ${percent(Math.max(...longer))} too long, most likely because the times of the engines alone are summed (see the next section). So requests stay longer, batches are larger (${batch(before)} predicted, ${batch(runs)} served under ${BASE}), and larger batches leave less to gain, as the loads above show.`,
    ]
  })
}

/**
 * Where a prediction of p99 missed by more than the served interval: the engines' own steps. In the
 * simulator, engines that take turns on one device have steps of nearly the same length.
 */
export function paces(all: readonly Both[], compared: readonly Compared[]): string[] {
  const missed = compared.filter(
    ({ before, measure, policy, served }) =>
      measure === TAIL &&
      !LOAD_BALANCERS.includes(policy) &&
      Math.abs(before.points) > Math.max(TOLERANCE_POINTS, 100 * (served.half || 0)),
  )
  const words = ({ batch, ms }: EnginePace) =>
    `batch ${fixed(batch, 0)}, ${fixed(quantile(ms, 0.5), 2)} ms at the median and ${fixed(quantile(ms, 0.9), 2)} at p90`
  const found = missed.flatMap(({ load, policy }) => {
    const { runs } = all.find(one => one.load === load)!
    const { fullest, emptiest } = enginePaces(runs.filter(run => run.policy === policy))
    if (fullest.ms.length === 0) return []
    const differs = quantile(fullest.ms, 0.5) > quantile(emptiest.ms, 0.5)
    return [
      `${policy}, ${load}: the fullest engine had ${words(fullest)}, the emptiest ${words(emptiest)}${differs ? '' : ' (no slower at the median: this does not explain it)'}.`,
    ]
  })
  if (found.length === 0) return []
  return [
    `Where p99 is missed by more than the served interval: the simulator gives engines that take turns on one device steps of nearly the same length, while the steps of a fuller engine were longer, and p99 is that of the fullest. ${found.join(' ')}`,
  ]
}
