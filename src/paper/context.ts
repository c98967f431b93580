/** What the simulated exhibits share, and the text that names their traces, profile, cluster and seeds. */
import type { CostProfile } from '../cost/profile.ts'
import { many, whole } from '../report/numbers.ts'
import type { Workload } from './fits.ts'
import { type RateOf, TOPOLOGY } from './loads.ts'
import type { RecordedSource } from './recorded.ts'
import type { TraceFile } from './traces.ts'
import { listed, shortHash } from './words.ts'

export interface Context {
  /** The task mix, then the language mix. */
  readonly workloads: readonly [Workload, Workload]
  /** Default cost profile. */
  readonly profile: CostProfile
  /** Profile with a whole decode step measured. */
  readonly measured: CostProfile
  readonly seeds: number
  readonly requests: number
  readonly rateOf: RateOf
  /** Empty unless a folder of recorded arrivals was given. */
  readonly recorded: readonly RecordedSource[]
}

interface Simulation {
  readonly profile?: CostProfile
  readonly topology?: string
  /** Default: Poisson. */
  readonly arrivals?: string
  readonly replacement?: boolean
  /** Default: 16 clusters. */
  readonly artifact?: string
}

export const namedTrace = ({ name, sha256 }: TraceFile): string => `${name} (sha256 ${shortHash(sha256)}…)`

/** Source line of an exhibit: topology, profile, traces, artifact, arrivals and seeds. */
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
    replacement === true
      ? 'trace rows drawn with replacement'
      : 'no trace row runs twice at once while another is free'
  return `Simulated: ${topology}, profile ${profile.name}, ${listed(workloads.map(({ evaluation }) => namedTrace(evaluation)))}; artifact count-idf, ${artifact}, fitted on ${listed(workloads.map(({ calibration }) => namedTrace(calibration)))}; ${arrivals} arrivals, ${rows}, ${whole(context.requests)} requests per run, ${many(context.seeds, 'seed')}; ± is the 95 % interval over seeds.`
}

export function fittedFrom(workloads: readonly Workload[]): string {
  return `Computed from ${listed(workloads.map(({ calibration }) => `${namedTrace(calibration)}, ${whole(calibration.requests)} requests`))}.`
}
