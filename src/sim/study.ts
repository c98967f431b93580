/**
 * A study: policies on one evaluation trace, artifact, profile and topology, or on several. `prepare`
 * returns, once per thread of a sweep, the function that runs one job; inputs are loaded on first use. All
 * jobs of a seed and a setting see requests at the same times, and the same requests if rows are drawn with
 * replacement; in passes a row in flight lets another go first.
 */
import { EldrError } from '../errors.ts'
import { stepParts } from '../cost/profile.ts'
import { createDecodePolicy, missingFor } from '../policy/create-policy.ts'
import type { DecodePolicy, PolicyOptions } from '../policy/decode-policy.ts'
import {
  createPrefillPolicy,
  DEFAULT_PREFILL_POLICY,
  type PrefillPolicyName,
} from '../policy/prefill-policy.ts'
import { learntCosts } from '../policy/learnt-costs.ts'
import type { UnionCost } from '../policy/step-cost.ts'
import { DEFAULT_COST } from '../policy/union.ts'
import type { ArrivalSpec } from './arrivals.ts'
import { type BenchLoad, benchRun } from './bench-load.ts'
import { type CellsData, cellsOf, clustersOf } from './cell-study.ts'
import type { Slo } from './metrics.ts'
import type { MixSpec } from './mix-draw.ts'
import type { RecordedFile } from './recorded-workload.ts'
import type { Replicas } from './replicas.ts'
import type { SimulationResult } from './result.ts'
import { type MeasuredPart, simulate, type SimulationInput, type SlowDecoder } from './simulate.ts'
import {
  createStudyLibrary,
  type Evaluation,
  type PlacementKind,
  type StudyLibrary,
} from './study-library.ts'
import type { SweepJob } from './sweep.ts'
import { parseTopology } from './topology.ts'
import { type CostKind, parseVariant } from './variant.ts'
import type { WorkloadSpec } from './workload.ts'

export interface StudyData {
  readonly trace: string
  readonly artifact?: string
  /**
   * Clusters that the artifact is used with (default: one per decode worker). With another number some
   * workers have no centroid, or some centroids no worker, as before a refit.
   */
  readonly clusters?: number
  /** Name of a shipped profile, or a path. */
  readonly profile: string
  readonly topology: string
  readonly requests: number
  /** Arrival process; ignored if `workload` is given, which has its own times. */
  readonly arrivals: 'poisson' | 'gamma' | 'on_off'
  readonly rows: 'passes' | 'replacement'
  /** Rows to replay, in order, instead of a draw: to reproduce another run. */
  readonly rowList?: Int32Array
  /** A mix of domains that changes over time, instead of `rows`. */
  readonly mix?: MixSpec
  /** Which requests are measured (default: all but a warm-up and a cool-down). */
  readonly measured?: MeasuredPart
  /** Recorded arrivals with their lengths and shared prefixes, stretched to the rate. */
  readonly workload?: RecordedFile
  /** The requests of a run of `eldr bench`, instead of `requests`, `rows` and `workload`. */
  readonly load?: BenchLoad
  /** Of experts on the ranks of expert-parallel decoders (default: linear). */
  readonly placement?: PlacementKind
  /** Default: `DEFAULT_PREFILL_POLICY`. */
  readonly prefillPolicy?: PrefillPolicyName
  /** Prompt tokens that each prefill worker caches (default: none). */
  readonly prefixCacheTokens?: number
  readonly slo?: Slo
  /** Several gateways in front of the workers (default: one with exact loads). */
  readonly gateways?: GatewaysData
  /** Decode workers in cells (default: one cell). */
  readonly cells?: CellsData
  readonly slowDecoder?: SlowDecoder
}

/** As in `Replicas`. */
export interface GatewaysData {
  readonly count: number
  readonly viewAgeMs: number | null
  readonly entrance?: 'random' | 'round_robin'
  /** True if policies estimate unseen requests; see policy/anticipate.ts. */
  readonly anticipating?: boolean
}

/** A job may override the study's data. */
export type StudyJob = SweepJob<Partial<StudyData>>

/** `onStep` is called when a decode step begins. */
export async function prepare(
  data: StudyData,
  onStep?: SimulationInput['onStep'],
): Promise<(job: StudyJob) => Promise<SimulationResult>> {
  const library = createStudyLibrary()
  await library.evaluation(
    data.trace,
    data.artifact,
    clustersOf(data.cells, parseTopology(data.topology).decode),
  ) // reports problems with the files before the first run
  return job => run(library, { ...data, ...job.setting }, job, onStep)
}

async function run(
  library: StudyLibrary,
  data: StudyData,
  { variant, rate, seed }: StudyJob,
  onStep: SimulationInput['onStep'],
): Promise<SimulationResult> {
  const topology = parseTopology(data.topology)
  const profile = await library.profile(data.profile)
  const evaluation = await library.evaluation(
    data.trace,
    data.artifact,
    data.clusters ?? clustersOf(data.cells, topology.decode),
  )
  const { replay, featuresOf, shape, artifact, predictor } = evaluation
  const { policy, tau, foresight, cost } = parseVariant(variant)!
  const fitted = async (workers: number) =>
    (await library.evaluation(data.trace, data.artifact, workers)).artifact
  const cells = data.cells && (await cellsOf(data.cells, topology.decode, fitted))
  const settings: PolicyOptions = {
    workers: topology.decode,
    shape,
    artifact: artifact && (cells?.artifact ?? artifact),
    predictor: policy.needs.includes('counts') ? predictor(foresight) : undefined,
    tau,
  }
  const missing = missingFor(policy, settings)
  if (missing !== undefined)
    throw new EldrError('ELDR_USAGE', {
      found: `policy ${variant}`,
      expected: missing.words,
      todo: 'Give one with --artifact.',
    })
  const make = (unseen?: PolicyOptions['unseen']): DecodePolicy => {
    const costs = costsOf(cost, stepParts(profile, topology.ranks), data.slowDecoder)
    const made = createDecodePolicy(policy, { ...settings, ...costs, unseen })!
    return cells === undefined ? made : cells.around(made)
  }
  const kind = topology.ranks > 1 ? (data.placement ?? 'linear') : 'linear'
  const placement = kind === 'linear' ? undefined : await library.placement(data, kind, topology)
  return simulate({
    ...(await requestsOf(library, data, evaluation, rate, seed)),
    seed,
    replay,
    profile,
    topology,
    decodePolicy: gatewaysOf(data.gateways, policy.name, make),
    featuresOf,
    prefillPolicy: topology.prefill > 0 ? createPrefillPolicy(prefillPolicyOf(data)) : undefined,
    limits: { prefixCacheTokens: data.prefixCacheTokens ?? 0 },
    placement,
    slo: data.slo,
    slowDecoder: data.slowDecoder,
    onStep,
  }).result
}

export function prefillPolicyOf({ prefillPolicy }: Pick<StudyData, 'prefillPolicy'>): PrefillPolicyName {
  return prefillPolicy ?? DEFAULT_PREFILL_POLICY
}

function costsOf(
  kind: CostKind | undefined,
  cost: UnionCost,
  slow: SlowDecoder | undefined,
): Pick<PolicyOptions, 'cost' | 'learnt'> {
  if (kind === 'default') return {}
  if (kind === 'learnt') return { learnt: learntCosts(DEFAULT_COST) }
  if (kind === undefined || slow === undefined) return { cost }
  const { base, perExpert, perRequest } = cost
  const slower = {
    base: slow.factor * base,
    perExpert: slow.factor * perExpert,
    perRequest: slow.factor * perRequest,
  }
  return { learnt: { of: worker => (worker === slow.decoder ? slower : cost) } }
}

type MakePolicy = (unseen?: PolicyOptions['unseen']) => DecodePolicy

function gatewaysOf(
  gateways: GatewaysData | undefined,
  name: string,
  make: MakePolicy,
): DecodePolicy | Replicas {
  if (gateways === undefined) return make()
  const { count, viewAgeMs, entrance = 'random', anticipating = false } = gateways
  return { name, count, viewAgeMs, entrance, create: unseen => make(anticipating ? unseen : undefined) }
}

async function requestsOf(
  library: StudyLibrary,
  data: StudyData,
  evaluation: Evaluation,
  rate: number,
  seed: number,
): Promise<Pick<SimulationInput, 'workload' | 'requests' | 'measured'>> {
  if (data.load !== undefined)
    return benchRun(data.load, arrivalsAt(data.arrivals, rate), evaluation.replay, seed)
  const { mix: spec, measured } = data
  const { domains, domainOf } = evaluation
  if (spec !== undefined && domainOf === undefined) throw new RangeError('a mix of a trace without domains')
  const workload = {
    ...(await workloadOf(library, data, rate)),
    mix: spec && { spec, domains, domainOf: domainOf! },
  }
  const requests = Math.min(data.requests, workload.lengths?.timesUs.length ?? Infinity)
  return { workload, requests, measured }
}

async function workloadOf(library: StudyLibrary, data: StudyData, perSecond: number): Promise<WorkloadSpec> {
  const { workload, arrivals, rowList, requests } = data
  const rows = rowList ?? data.rows
  if (workload === undefined) return { arrivals: arrivalsAt(arrivals, perSecond), rows }
  const lengths = await library.workload(workload)
  // The requests that run have the requested rate, whatever the rate of those after them.
  return {
    arrivals: { kind: 'recorded', timesUs: lengths.timesUs.subarray(0, requests), perSecond },
    rows,
    lengths,
  }
}

/**
 * Bursts: gamma gaps of shape 0.25 have twice the deviation of Poisson's; on/off is silent for 5 s after each
 * 5 s, on average.
 */
export function arrivalsAt(kind: StudyData['arrivals'], perSecond: number): ArrivalSpec {
  if (kind === 'gamma') return { kind, perSecond, shape: 0.25 }
  if (kind === 'on_off') return { kind, perSecond, onSeconds: 5, offSeconds: 5 }
  return { kind, perSecond }
}
