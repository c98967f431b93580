/** Many runs: every variant at every rate with every seed, on all cores; seeds are then brought together as a mean with its confidence interval. */
import { type Interval, meanInterval } from './confidence.ts'
import { runParallel } from './parallel.ts'
import type { SimulationResult } from './result.ts'

/** One run. `variant` names what is compared: a policy, or a policy with a setting; the module that prepares a sweep knows what it means. */
export interface SweepJob {
  readonly variant: string
  /** Requests a second. */
  readonly rate: number
  readonly seed: number
}

export interface SweepPlan<Data> {
  readonly variants: readonly string[]
  readonly rates: readonly number[]
  readonly seeds: readonly number[]
  /** Exports `prepare(data)`, which gives a function from a SweepJob to a SimulationResult. */
  readonly module: URL
  readonly data: Data
  readonly threads?: number
  readonly onProgress?: (done: number, of: number) => void
}

/** One variant at one rate. */
export interface SweepPoint {
  readonly variant: string
  readonly rate: number
  /** In the order of the seeds. */
  readonly runs: readonly SimulationResult[]
}

export async function sweep<Data>({ variants, rates, seeds, ...how }: SweepPlan<Data>): Promise<SweepPoint[]> {
  const points = variants.flatMap(variant => rates.map(rate => ({ variant, rate })))
  // Seeds outermost: all points have their first run before any has its second, and long runs (high rates) are spread over the time.
  const jobs: SweepJob[] = seeds.flatMap(seed => points.map(point => ({ ...point, seed })))
  const results = await runParallel<Data, SweepJob, SimulationResult>({ ...how, jobs })
  return points.map((point, at) => ({ ...point, runs: seeds.map((_, s) => results[s * points.length + at]!) }))
}

/** One number of a point's runs: mean over seeds and its 95 % confidence interval. */
export function over({ runs }: SweepPoint, value: (run: SimulationResult) => number): Interval {
  return meanInterval(runs.map(value))
}

/**
 * How much a number changes against another point, as a share: −0.1 is a tenth less. Runs are paired by seed, for they saw the same
 * requests at the same times: the interval is that of the differences, not of two independent means.
 */
export function changeAgainst(base: SweepPoint, point: SweepPoint, value: (run: SimulationResult) => number): Interval {
  return meanInterval(point.runs.map((run, s) => value(run) / value(base.runs[s]!) - 1))
}
