/**
 * Many runs: every variant at every rate with every seed, on all cores; seeds are combined into a mean with
 * its confidence interval.
 */
import { type Interval, meanInterval } from './confidence.ts'
import type { Pool } from './parallel.ts'
import type { SimulationResult } from './result.ts'

/**
 * What runs with several seeds: `variant` names a policy, or a policy with a setting, which the preparing
 * module interprets.
 */
export interface SweepCell<Setting = unknown> {
  readonly variant: string
  /** Requests per second. */
  readonly rate: number
  /** Overrides of the sweep's data. */
  readonly setting?: Setting
}

export interface SweepJob<Setting = unknown> extends SweepCell<Setting> {
  readonly seed: number
}

export interface SweepPlan<Setting> {
  readonly cells: readonly SweepCell<Setting>[]
  readonly seeds: readonly number[]
  readonly pool: Pool<SweepJob<Setting>, SimulationResult>
  readonly onProgress?: (done: number, of: number) => void
}

/** One cell and its runs, in the order of the seeds. */
export interface SweepPoint<Setting = unknown> extends SweepCell<Setting> {
  readonly runs: readonly SimulationResult[]
}

/** Every variant at every rate. */
export function grid(
  variants: readonly string[],
  rates: readonly number[],
): { variant: string; rate: number }[] {
  return variants.flatMap(variant => rates.map(rate => ({ variant, rate })))
}

/** Points are in the order of the cells. */
export async function sweep<Setting>({
  cells,
  seeds,
  pool,
  onProgress,
}: SweepPlan<Setting>): Promise<SweepPoint<Setting>[]> {
  // Seeds outermost: all cells have their first run before any has its second, and long runs (high rates) are
  // spread over time.
  const results = await pool.run(
    seeds.flatMap(seed => cells.map(cell => ({ ...cell, seed }))),
    onProgress,
  )
  return cells.map((cell, at) => ({ ...cell, runs: seeds.map((_, s) => results[s * cells.length + at]!) }))
}

/** One number of a point's runs: mean over seeds and its 95 % confidence interval. */
export function over({ runs }: SweepPoint, value: (run: SimulationResult) => number): Interval {
  return meanInterval(runs.map(value))
}

/**
 * Relative change of a number against another point: −0.1 is a tenth less. Runs are paired by seed, because
 * they saw the same requests at the same times: the interval is that of the differences, not of two
 * independent means.
 */
export function changeAgainst(
  base: SweepPoint,
  point: SweepPoint,
  value: (run: SimulationResult) => number,
): Interval {
  return meanInterval(point.runs.map((run, s) => value(run) / value(base.runs[s]!) - 1))
}
