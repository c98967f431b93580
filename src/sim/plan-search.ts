/**
 * The searches of a plan: each probe runs with every seed, and those of all policies in a round run as one
 * list.
 */
import type { CostProfile } from '../cost/profile.ts'
import { type Axis, type Edge, inRounds, rateAxis, searchEdge, workerAxis } from './capacity.ts'
import type { Pool } from './parallel.ts'
import { type Bounds, requestsFor, type Traffic } from './plan-bounds.ts'
import { isPrefillBound, type Limit, type PlanSlo, type Probe, probeOf } from './plan-probe.ts'
import type { Refits } from './refits.ts'
import type { SimulationResult } from './result.ts'
import type { StudyData, StudyJob } from './study.ts'
import { sweep } from './sweep.ts'
import { type Topology, topologyText } from './topology.ts'

/** The result of a search. */
export interface Found {
  readonly outcome: Edge['outcome']
  /** The hardest value that holds; null if none does. */
  readonly value: number | null
  /** At that value, or at the easiest one; absent if it was clear without trying. */
  readonly probe?: Probe
  /**
   * What breaks at the next value, or at the easiest one; empty if one worker is enough, or if more would be
   * needed than can be tried.
   */
  readonly limits: readonly Limit[]
}

export interface PlanSearch {
  /** [policies][in the order in which they ran] */
  readonly probes: readonly (readonly Probe[])[]
  /** Maximum number of decode workers to try. */
  readonly mostDecoders: number
  /** In the order of the policies, like all of these. On the given topology. */
  highestRates(): Promise<Found[]>
  /** `highest`: the rate that each policy holds on the given topology, to start near the solution. */
  fewestDecoders(rate: number, highest: readonly Found[]): Promise<Found[]>
  all(rate: number): Promise<Probe[]>
}

export interface PlanSearchInput {
  readonly study: StudyData
  readonly slo: PlanSlo
  readonly policies: readonly string[]
  readonly seeds: number
  readonly topology: Topology
  readonly profile: CostProfile
  readonly traffic: Traffic
  readonly bounds: Bounds
  readonly pool: Pool<StudyJob, SimulationResult>
  readonly refits: Refits
  readonly onProgress?: (what: string, done: number, of: number) => void
}

/**
 * Relative tolerance of a rate: the search ends if the value that fails is at most this much above the value
 * that holds.
 */
export const RATE_TOLERANCE = 0.01
/** Beyond this, a run takes minutes. */
const MAX_DECODERS = 1024

interface ProbeJob {
  readonly policy: number
  readonly rate: number
  readonly decoders: number
}

export function planSearch(input: PlanSearchInput): PlanSearch {
  const { study, slo, policies, topology, profile, traffic, bounds, pool, refits, onProgress } = input
  const seeds = Array.from({ length: input.seeds }, (_, seed) => seed)
  const probes = policies.map((): Probe[] => [])
  const mostDecoders = Math.min(MAX_DECODERS, refits.maxWorkers)

  async function run(what: string, jobs: readonly ProbeJob[]): Promise<Probe[]> {
    const cells: { variant: string; rate: number; setting: Partial<StudyData> }[] = []
    for (const { policy, rate, decoders } of jobs) {
      const cluster = { ...topology, decode: decoders }
      const artifact = await refits.pathFor(decoders)
      const requests = requestsFor(rate, study.requests, {
        profile,
        traffic,
        topology: cluster,
        sloTpotMs: slo.tpotMs,
      })
      const setting = {
        topology: topologyText(cluster),
        requests,
        artifact,
      }
      cells.push({ variant: policies[policy]!, rate, setting })
    }
    const points = await sweep({ cells, seeds, pool, onProgress: (done, of) => onProgress?.(what, done, of) })
    return points.map(({ runs }, at) => {
      const { policy, rate, decoders } = jobs[at]!
      const probe = probeOf(rate, decoders, runs, slo, traffic.decodeTokens)
      probes[policy]!.push(probe)
      return probe
    })
  }

  /**
   * One search per axis; `at` says what a value means, `isHopeless` which failures no easier value would fix.
   */
  async function search(
    what: string,
    axes: readonly Axis[],
    at: (search: number, value: number) => ProbeJob,
    isHopeless: (probe: Probe) => boolean = () => false,
  ): Promise<Found[]> {
    const seen = axes.map(() => new Map<number, Probe>())
    let round = 0
    const edges = await inRounds(axes.map(searchEdge), async queries => {
      const answers = await run(
        `${what}, round ${++round}`,
        queries.map(({ search, value }) => at(search, value)),
      )
      return answers.map((probe, n) => {
        const { search, value } = queries[n]!
        seen[search]!.set(value, probe)
        if (probe.holds) return 'holds'
        return isHopeless(probe) ? 'hopeless' : 'fails'
      })
    })
    return edges.map((edge, n) => foundAt(edge, seen[n]!))
  }

  return {
    probes,
    mostDecoders,
    async highestRates() {
      const axis = rateAxis(bounds, RATE_TOLERANCE)
      const axes = policies.map(() => axis)
      const found = await search('highest rate', axes, (policy, rate) => ({
        policy,
        rate,
        decoders: topology.decode,
      }))
      const bound: Limit = bounds.prefill === bounds.highest ? 'prefill_rate' : 'decode_rate'
      return found.map(one => (one.outcome === 'always' ? { ...one, limits: [bound] } : one))
    },
    async fewestDecoders(rate, highest) {
      if (rate > (bounds.prefill ?? Infinity))
        return policies.map(() => ({ outcome: 'never', value: null, limits: ['prefill_rate'] }))
      const guesses = highest.map(({ value }) =>
        value === null ? Infinity : Math.ceil((topology.decode * rate) / value),
      )
      const open = policies.map((_, policy) => policy).filter(policy => guesses[policy]! <= mostDecoders)
      const axes = open.map(policy => workerAxis(guesses[policy]!, mostDecoders))
      const found = await search(
        'fewest decode workers',
        axes,
        (n, decoders) => ({ policy: open[n]!, rate, decoders }),
        isPrefillBound, // more decode workers do not help prefill
      )
      return highest.map(({ value, limits }, policy) => {
        const searched = found[open.indexOf(policy)]
        return searched ?? { outcome: 'never', value: null, limits: value === null ? limits : [] }
      })
    },
    async all(rate) {
      const known = probes.map(own =>
        own.find(probe => probe.rate === rate && probe.decoders === topology.decode),
      )
      const missing = policies.map((_, policy) => policy).filter(policy => known[policy] === undefined)
      const ran = await run(
        'all at one rate',
        missing.map(policy => ({ policy, rate, decoders: topology.decode })),
      )
      return known.map((probe, policy) => probe ?? ran[missing.indexOf(policy)]!)
    },
  }
}

function foundAt(edge: Edge, seen: ReadonlyMap<number, Probe>): Found {
  const { outcome } = edge
  const limits = edge.outcome === 'always' ? [] : seen.get(edge.fails)!.limits
  if (edge.outcome === 'never') return { outcome, value: null, probe: seen.get(edge.fails)!, limits }
  return { outcome, value: edge.holds, probe: seen.get(edge.holds)!, limits }
}
