/**
 * Simulated exhibits. Each lists the runs it needs; all runs go through one queue so that no core idles; then
 * each exhibit is built.
 */
import type { Interval } from '../sim/confidence.ts'
import { meanInterval } from '../sim/confidence.ts'
import type { Pool } from '../sim/parallel.ts'
import type { SimulationResult } from '../sim/result.ts'
import type { StudyData, StudyJob } from '../sim/study.ts'
import { type SweepCell, type SweepPoint, sweep } from '../sim/sweep.ts'

export type Setting = Partial<StudyData>
export type Cell = SweepCell<Setting> & { readonly setting: Setting }
export type Point = SweepPoint<Setting>
export type PointOf = (cell: Cell) => Point
export type Value = (run: SimulationResult) => number

export interface Simulated<Made> {
  readonly cells: readonly Cell[]
  make(pointOf: PointOf): Made
}

export interface Runs {
  readonly pool: Pool<StudyJob, SimulationResult>
  readonly seeds: readonly number[]
  readonly onProgress?: (done: number, of: number) => void
}

/** Cells that several exhibits share are run once. */
export async function runCells(cells: readonly Cell[], { pool, seeds, onProgress }: Runs): Promise<PointOf> {
  const different = new Map(cells.map(cell => [keyOf(cell), cell]))
  const points = await sweep({ cells: [...different.values()], seeds, pool, onProgress })
  const found = new Map(points.map((point, at) => [[...different.keys()][at]!, point]))
  return cell => found.get(keyOf(cell))!
}

/** Cells of several variants under one setting and rate. */
export function cellsOf(variants: readonly string[], rate: number, setting: Setting): Cell[] {
  return variants.map(variant => ({ variant, rate, setting }))
}

function keyOf({ variant, rate, setting }: Cell): string {
  return JSON.stringify([variant, rate, Object.entries(setting).sort(([a], [b]) => (a < b ? -1 : 1))])
}

export const tpotP50: Value = run => run.tpotMs.p50
export const tpotP99: Value = run => run.tpotMs.p99
export const ttftP50: Value = run => run.ttftMs?.p50 ?? NaN
export const ttftP99: Value = run => run.ttftMs?.p99 ?? NaN
export const batchOf: Value = run => run.batch

/** Change against a base, averaged over rates; paired by seed, as `changeAgainst` does for one rate. */
export function meanChange(
  pairs: readonly { readonly base: Point; readonly point: Point }[],
  value: Value,
): Interval {
  const seeds = pairs[0]!.point.runs.length
  return meanInterval(
    Array.from({ length: seeds }, (_, s) => {
      const changes = pairs.map(({ base, point }) => value(point.runs[s]!) / value(base.runs[s]!) - 1)
      return changes.reduce((sum, change) => sum + change, 0) / changes.length
    }),
  )
}
