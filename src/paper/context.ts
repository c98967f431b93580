/** What simulated figures share, and how they name where their numbers come from. */
import type { CostProfile } from '../cost/profile.ts'
import { many, whole } from '../report/numbers.ts'
import type { Workload } from './fits.ts'
import { type RateOf, TOPOLOGY } from './loads.ts'
import type { RecordedSource } from './recorded.ts'
import type { TraceFile } from './traces.ts'
import { listed, shortHash } from './words.ts'

export interface Context {
  /** Task first. */
  readonly workloads: readonly [Workload, Workload]
  /** Cost profile of everything that does not name another. */
  readonly profile: CostProfile
  /** A whole decode step measured. */
  readonly measured: CostProfile
  readonly seeds: number
  readonly requests: number
  readonly rateOf: RateOf
  /** Recorded arrivals, where a folder with them was given. */
  readonly recorded: readonly RecordedSource[]
}

interface Simulation {
  readonly profile?: CostProfile
  readonly topology?: string
  /** Poisson unless told. */
  readonly arrivals?: string
  readonly replacement?: boolean
  /** What is not usual of the artifact. */
  readonly artifact?: string
}

export const namedTrace = ({ name, sha256 }: TraceFile): string => `${name} (sha256 ${shortHash(sha256)}…)`

/** Simulated from which trace, profile, topology and seeds. */
export function simulatedFrom(
  context: Context,
  workloads: readonly Workload[],
  simulation: Simulation = {},
): string {
  const {
    profile = context.profile,
    topology = TOPOLOGY,
    arrivals = 'Poisson',
    replacement,
    artifact = '16 clusters',
  } = simulation
  const rows =
    replacement === true ? 'rows drawn with replacement' : 'no row twice in flight while another is free'
  return `Simulated: ${topology}, profile ${profile.name}, ${listed(workloads.map(({ evaluation }) => namedTrace(evaluation)))}; artifact count-idf, ${artifact}, of ${listed(workloads.map(({ calibration }) => namedTrace(calibration)))}; ${arrivals} arrivals, ${rows}, ${whole(context.requests)} requests a run, ${many(context.seeds, 'seed')}, ± is the 95 % interval over seeds.`
}

export function fittedFrom(workloads: readonly Workload[]): string {
  return `Computed from ${listed(workloads.map(({ calibration }) => `${namedTrace(calibration)}, ${whole(calibration.requests)} requests`))}.`
}
