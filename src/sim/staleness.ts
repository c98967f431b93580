/**
 * What it costs when several gateways share one set of decode workers and see each other's requests late: every policy with every number
 * of gateways and every age of their views, with and without supposing what has not been heard of (policy/anticipate.ts), beside one
 * gateway that sees all.
 */
import type { Pool } from './parallel.ts'
import type { SimulationResult } from './result.ts'
import type { GatewaysData, StudyData, StudyJob } from './study.ts'
import { sweep, type SweepPoint } from './sweep.ts'
import { parseVariant } from './variant.ts'

export interface StalenessAsked {
  readonly study: StudyData
  readonly policies: readonly string[]
  /** Requests a second. */
  readonly rate: number
  /** Numbers of gateways, each above 1. */
  readonly gateways: readonly number[]
  /** null: they tell each other nothing. */
  readonly viewAgesMs: readonly (number | null)[]
  readonly seeds: number
}

/** One way to run the gateways. `gateways` is absent for the one that sees all. */
export interface StalenessPoint extends SweepPoint<Partial<StudyData>> {
  readonly gateways?: GatewaysData
}

/** In the order of a table: policy after policy, one gateway first, then by number, age, and without supposing before with. */
export function stalenessCells({
  policies,
  gateways,
  viewAgesMs,
}: Pick<StalenessAsked, 'policies' | 'gateways' | 'viewAgesMs'>) {
  return policies.flatMap(variant => {
    const supposes = parseVariant(variant)?.policy.herds ?? true
    const several = gateways.flatMap(count =>
      viewAgesMs.flatMap((viewAgeMs): GatewaysData[] => [
        { count, viewAgeMs, anticipating: false },
        // Where views are exact, or there are none, nothing is to be supposed.
        ...(supposes && viewAgeMs !== null && viewAgeMs > 0
          ? [{ count, viewAgeMs, anticipating: true }]
          : []),
      ]),
    )
    return [{ variant }, ...several.map(each => ({ variant, gateways: each }))]
  })
}

export async function runStaleness(
  asked: StalenessAsked,
  pool: Pool<StudyJob, SimulationResult>,
  onProgress?: (done: number, of: number) => void,
): Promise<StalenessPoint[]> {
  const cells = stalenessCells(asked)
  const points = await sweep<Partial<StudyData>>({
    cells: cells.map(({ variant, ...rest }) => ({ variant, rate: asked.rate, setting: rest })),
    seeds: Array.from({ length: asked.seeds }, (_, seed) => seed),
    pool,
    ...(onProgress && { onProgress }),
  })
  return points.map(point => ({ ...point, ...point.setting }))
}

/** The same policy with one gateway that sees all: what the others are held against. */
export function exactPoint(points: readonly StalenessPoint[], { variant }: StalenessPoint): StalenessPoint {
  return points.find(point => point.variant === variant && point.gateways === undefined)!
}
