/**
 * The cost of several gateways that share one set of decode workers and see each other's requests late: every
 * policy with every number of gateways and every age of their views, with and without an estimate of unseen
 * requests (policy/anticipate.ts), compared with one gateway that sees everything.
 */
import type { Pool } from './parallel.ts'
import type { SimulationResult } from './result.ts'
import type { GatewaysData, StudyData, StudyJob } from './study.ts'
import { sweep, type SweepPoint } from './sweep.ts'
import { parseVariant } from './variant.ts'

export interface StalenessOptions {
  readonly study: StudyData
  readonly policies: readonly string[]
  /** Requests per second. */
  readonly rate: number
  /** Numbers of gateways, each above 1. */
  readonly gateways: readonly number[]
  /** null: they share nothing. */
  readonly viewAgesMs: readonly (number | null)[]
  readonly seeds: number
}

/** One setup of gateways. `gateways` is absent for one gateway that sees everything. */
export interface StalenessPoint extends SweepPoint<Partial<StudyData>> {
  readonly gateways?: GatewaysData
}

/**
 * In the order of a table: by policy, one gateway first, then by number, age, and without the estimate before
 * with it.
 */
export function stalenessCells({
  policies,
  gateways,
  viewAgesMs,
}: Pick<StalenessOptions, 'policies' | 'gateways' | 'viewAgesMs'>) {
  return policies.flatMap(variant => {
    const herds = parseVariant(variant)?.policy.herds ?? true
    const several = gateways.flatMap(count =>
      viewAgesMs.flatMap((viewAgeMs): GatewaysData[] => [
        { count, viewAgeMs, anticipating: false },
        // Exact views, or none at all, leave nothing to estimate.
        ...(herds && viewAgeMs !== null && viewAgeMs > 0 ? [{ count, viewAgeMs, anticipating: true }] : []),
      ]),
    )
    return [{ variant }, ...several.map(each => ({ variant, gateways: each }))]
  })
}

export async function runStaleness(
  options: StalenessOptions,
  pool: Pool<StudyJob, SimulationResult>,
  onProgress?: (done: number, of: number) => void,
): Promise<StalenessPoint[]> {
  const cells = stalenessCells(options)
  const points = await sweep<Partial<StudyData>>({
    cells: cells.map(({ variant, ...rest }) => ({ variant, rate: options.rate, setting: rest })),
    seeds: Array.from({ length: options.seeds }, (_, seed) => seed),
    pool,
    onProgress,
  })
  return points.map(point => ({ ...point, ...point.setting }))
}

/** The same policy with one gateway that sees everything: the baseline. */
export function exactPoint(points: readonly StalenessPoint[], { variant }: StalenessPoint): StalenessPoint {
  return points.find(point => point.variant === variant && point.gateways === undefined)!
}
