/**
 * Simulated settings and loads. A load is a setting and the mean decode batch that jsq should have; the rates
 * that give it are searched before anything else is run.
 */
import type { CostProfile } from '../cost/profile.ts'
import { stepUs } from '../cost/profile.ts'
import type { Pool } from '../sim/parallel.ts'
import { findRates, type LoadWanted } from '../sim/rate-search.ts'
import type { RecordedFile } from '../sim/recorded-workload.ts'
import type { SimulationResult } from '../sim/result.ts'
import type { StudyJob } from '../sim/study.ts'
import { parseTopology } from '../sim/topology.ts'
import type { Setting } from './cells.ts'
import type { Workload } from './fits.ts'

/** Mean decode batches at which policies are compared. */
export const BATCHES = [10, 20, 35, 45] as const
/** For quick runs, and where two points are enough. */
export const FEW_BATCHES = [20, 35] as const
export const TOPOLOGY = '8P16D'
export const EP_TOPOLOGY = '2P8D×EP4'
/** Fitted to the steps of a served engine; in the default profile only the MoE part is measured. */
export const MEASURED_PROFILE = 'h200-served-qwen3-30b-a3b'

/**
 * A setting overrides the study's defaults: 8P16D, Poisson arrivals, no trace row in flight twice, the chosen
 * profile.
 */
export const served = ({ evaluation, artifacts }: Workload): Setting => ({
  trace: evaluation.path,
  artifact: artifacts.recipe,
})
/** As in the NumPy prototype: decode only, trace rows drawn with replacement. */
export const asPrototype = (of: Workload): Setting => ({
  ...served(of),
  topology: '16D',
  rows: 'replacement',
})
export const measured = (of: Workload): Setting => ({ ...served(of), profile: MEASURED_PROFILE })
/**
 * With replacement, because otherwise the free rows, and so the prompt lengths, would depend on the policy.
 */
export const bursty = (of: Workload): Setting => ({ ...served(of), arrivals: 'gamma', rows: 'replacement' })
export const expertParallel = (of: Workload): Setting => ({
  trace: of.evaluation.path,
  artifact: of.artifacts.workers[8],
  topology: EP_TOPOLOGY,
  profile: MEASURED_PROFILE,
})
export const recorded = (of: Workload, workload: RecordedFile, topology: string): Setting => ({
  ...served(of),
  workload,
  topology,
  rows: 'replacement',
})

export interface Load {
  readonly setting: Setting
  readonly batch: number
  /** Mean tokens decoded per request. */
  readonly decodeSteps: number
}

/** Requests per second at which jsq has this batch under this setting. */
export type RateOf = (setting: Setting, batch: number) => number

export async function findLoads(
  loads: readonly Load[],
  profileOf: (setting: Setting) => CostProfile,
  pool: Pool<StudyJob, SimulationResult>,
  onProgress?: (done: number, of: number) => void,
): Promise<RateOf> {
  const wanted = loads.map((load): LoadWanted<Setting> => ({
    setting: load.setting,
    variant: 'jsq',
    batch: load.batch,
    guess: guess(load, profileOf(load.setting)),
  }))
  const found = await findRates(wanted, { pool, seed: 0, onProgress })
  const rates = new Map(loads.map((load, at) => [keyOf(load.setting, load.batch), found[at]!.rate]))
  return (setting, batch) => rates.get(keyOf(setting, batch))!
}

const keyOf = (setting: Setting, batch: number): string => JSON.stringify([setting, batch])

/**
 * First guess by Little's law: workers × batch requests in flight. Assumes that requests choose experts
 * independently.
 */
export function guess({ setting, batch, decodeSteps }: Load, profile: CostProfile): number {
  const { decode, ranks } = parseTopology(setting.topology ?? TOPOLOGY)
  const { experts, topK } = profile.shape
  const active = experts * (1 - (1 - topK / experts) ** batch)
  return (
    (decode * batch) /
    ((decodeSteps *
      stepUs(
        profile,
        batch,
        active / ranks,
        0,
        profile.decode.windows?.map(() => 0),
      )) /
      1e6)
  )
}
