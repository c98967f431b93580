/**
 * What a policy buys: the highest rate that a cluster holds under an SLO, and the fewest decode workers that hold a rate, for each policy;
 * then the same in GPUs and money, and whether routing by experts pays at all (`verdict.ts`). All policies see the same seeds.
 */
import { loadProfile } from '../cost/profile-file.ts'
import { LOAD_BALANCERS } from './compare.ts'
import type { Pool } from './parallel.ts'
import { type Bounds, boundsOf, type Traffic, trafficOf } from './plan-bounds.ts'
import type { PlanSlo, Probe } from './plan-probe.ts'
import { type Found, planSearch } from './plan-search.ts'
import type { Refits } from './refits.ts'
import type { SimulationResult } from './result.ts'
import type { StudyData, StudyJob } from './study.ts'
import { costPerMillionTokens, gpusOf, parseTopology, type Topology } from './topology.ts'
import { type Verdict, verdictOf } from './verdict.ts'

export interface PlanAsked {
  /** `requests` is how many a run has at least. */
  readonly study: StudyData
  readonly slo: PlanSlo
  /** One load balancer and one other policy at least. */
  readonly policies: readonly string[]
  readonly seeds: number
  /** Requests a second for which the fewest decode workers are sought. */
  readonly rate?: number
  readonly pricePerGpuHour: number
  /** Whether the price is somebody's own; one that is not is called an example wherever it is shown. */
  readonly isPriceGiven?: boolean
}

export interface PlanTools {
  readonly pool: Pool<StudyJob, SimulationResult>
  readonly refits: Refits
  readonly onProgress?: (what: string, done: number, of: number) => void
}

/** On the given topology. `always`: up to the most that the workers can do at all; `never`: not even when requests are alone. */
export interface HighestRate extends Found {
  readonly probe: Probe
  /** Against the best load balancer, as a share; null for that one, and where one of the two holds no rate. */
  readonly gain: number | null
  /** Of tokens that decode made, while the cluster runs at this rate. */
  readonly costPerMillionTokens: number | null
}

/** For the rate that was asked for. All null when no number of decode workers holds it. */
export interface FewestDecoders extends Found {
  readonly gpus: number | null
  readonly costPerHour: number | null
  /** Against the load balancer that takes the fewest; null for balancers. */
  readonly gpusSaved: number | null
  /** In 365 days. */
  readonly savedPerYear: number | null
}

export interface PolicyPlan {
  readonly variant: string
  readonly isBalancer: boolean
  readonly highest: HighestRate
  /** Absent where no rate was asked for. */
  readonly fewest?: FewestDecoders
  readonly probes: readonly Probe[]
}

export interface Plan extends PlanAsked {
  readonly gpus: number
  readonly traffic: Traffic
  readonly bounds: Bounds
  /** Clusters of the artifact as it was given: where the topology has another number of decode workers, it was re-fitted. */
  readonly artifactWorkers: number | null
  /** Most decode workers that are tried: an artifact cannot be re-fitted to more than it has calibration requests. */
  readonly mostDecoders: number
  /** The load balancer with the highest rate. */
  readonly balancer: string
  readonly results: readonly PolicyPlan[]
  /** Every policy at the balancer's highest rate, or at the lowest when it holds none. */
  readonly sameRate: {
    readonly rate: number
    readonly points: readonly { readonly variant: string; readonly probe: Probe }[]
  }
  readonly verdict: Verdict
}

const HOURS_PER_YEAR = 8760

export async function makePlan(asked: PlanAsked, { pool, refits, onProgress }: PlanTools): Promise<Plan> {
  const { study, slo, policies, rate } = asked
  const topology = parseTopology(study.topology)
  const [profile, traffic] = [await loadProfile(study.profile), await trafficOf(study.trace)]
  const bounds = boundsOf(profile, traffic, topology, slo.tpotMs)
  const search = planSearch({
    ...asked,
    topology,
    profile,
    traffic,
    bounds,
    pool,
    refits,
    ...(onProgress && { onProgress }),
  })

  const highest = await search.highestRates()
  const fewest = rate === undefined ? undefined : await search.fewestDecoders(rate, highest)
  const base = bestBalancer(policies, highest)
  const shared = highest[base]!.probe!.rate
  const sameRate = {
    rate: shared,
    points: (await search.all(shared)).map((probe, at) => ({ variant: policies[at]!, probe })),
  }

  const ofBalancers = fewest
    ?.filter((_, at) => isBalancer(policies[at]!))
    .map(({ value }) => gpusFor(topology, value) ?? Infinity)
  const results = policies.map((variant, at): PolicyPlan => ({
    variant,
    isBalancer: isBalancer(variant),
    highest: {
      ...highest[at]!,
      probe: highest[at]!.probe!,
      gain: at === base ? null : change(highest[base]!.value, highest[at]!.value),
      costPerMillionTokens:
        highest[at]!.value === null
          ? null
          : costPerMillionTokens(topology, asked.pricePerGpuHour, highest[at]!.probe!.tokensPerSecond),
    },
    ...(fewest && {
      fewest: inMoney(
        fewest[at]!,
        topology,
        isBalancer(variant) ? Infinity : Math.min(...ofBalancers!),
        asked.pricePerGpuHour,
      ),
    }),
    probes: search.probes[at]!,
  }))
  const plan = {
    ...asked,
    gpus: gpusOf(topology),
    traffic,
    bounds,
    artifactWorkers: refits.workers ?? null,
    mostDecoders: search.mostDecoders,
    balancer: policies[base]!,
    results,
    sameRate,
  }
  return {
    ...plan,
    verdict: verdictOf({ ...plan, profile, ...(refits.rho !== undefined && { rho: refits.rho }) }),
  }
}

const isBalancer = (variant: string): boolean => LOAD_BALANCERS.includes(variant)

function bestBalancer(policies: readonly string[], highest: readonly Found[]): number {
  const balancers = policies.map((_, at) => at).filter(at => isBalancer(policies[at]!))
  if (balancers.length === 0) throw new RangeError('no load balancer to compare with')
  return balancers.reduce((best, at) => ((highest[at]!.value ?? 0) > (highest[best]!.value ?? 0) ? at : best))
}

function change(from: number | null, to: number | null): number | null {
  return from === null || to === null ? null : to / from - 1
}

function gpusFor(topology: Topology, decode: number | null): number | null {
  return decode === null ? null : gpusOf({ ...topology, decode })
}

/** `than`: the GPUs that it is compared with; Infinity when with none. */
function inMoney(found: Found, topology: Topology, than: number, pricePerGpuHour: number): FewestDecoders {
  const gpus = gpusFor(topology, found.value)
  const gpusSaved = gpus === null || than === Infinity ? null : than - gpus
  return {
    ...found,
    gpus,
    costPerHour: gpus === null ? null : gpus * pricePerGpuHour,
    gpusSaved,
    savedPerYear: gpusSaved === null ? null : gpusSaved * pricePerGpuHour * HOURS_PER_YEAR,
  }
}
