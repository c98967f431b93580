/**
 * Bounds from a profile and the lengths of a trace, before any simulation: which rates are worth trying, and
 * how long a run must be.
 */
import { type CostProfile, prefillUs, stepUs } from '../cost/profile.ts'
import { EldrError } from '../errors.ts'
import { withTrace } from '../trace/trace.ts'
import { DEFAULT_LIMITS } from './limits.ts'
import type { Topology } from './topology.ts'

/** Typical requests of a trace. Requests without decode steps are left out, as in a replay. */
export interface Traffic {
  readonly experts: number
  readonly topK: number
  /** Means over the requests. */
  readonly promptTokens: number
  readonly decodeTokens: number
}

export interface Bounds {
  /** A step with one request of mean length. */
  readonly aloneMs: number
  /** Requests per second at which two of them rarely meet on a worker. */
  readonly lowest: number
  /** Where the search begins: a batch whose step takes the SLO if every request drew its experts evenly. */
  readonly start: number
  /**
   * No policy can serve more: full batches that fire no more experts than one request does, or prefill in
   * full steps.
   */
  readonly highest: number
  /** Maximum rate of the prefill workers; null if prefill is not simulated. */
  readonly prefill: number | null
}

/** Share of its time that a worker is busy at the lowest rate. */
const ALONE = 0.01
/** Requests per second: for profiles that charge almost nothing. */
const MAX_RATE = 1e6
/**
 * Share of a run's requests at its beginning that are not measured, as in `simulate`: the workers must fill
 * up within it.
 */
const WARM_UP = 0.15
/**
 * How many times the requests in flight must have arrived by then: a worker that fills up slows down, so it
 * takes longer than one request.
 */
const FILLS = 1.5
/** A run is at most this many times longer than requested. */
const MAX_RUN_FACTOR = 10

export function trafficOf(file: string): Promise<Traffic> {
  return withTrace(file, async trace => {
    trace.need('replay')
    const [steps, prompts] = [await trace.decodeSteps(), await trace.promptTokens()]
    const rows = Array.from(steps.keys()).filter(row => steps[row]! > 0)
    if (rows.length === 0)
      throw new EldrError('ELDR_TRACE_TOO_SMALL', { file, found: 'no request with a decode step' })
    const mean = (of: (row: number) => number) => rows.reduce((sum, row) => sum + of(row), 0) / rows.length
    const { experts, topK } = trace
    return {
      experts,
      topK,
      promptTokens: mean(row => Math.max(1, prompts?.[row] ?? 1)),
      decodeTokens: mean(row => steps[row]!),
    }
  })
}

export function boundsOf(
  profile: CostProfile,
  traffic: Traffic,
  topology: Topology,
  sloTpotMs: number,
): Bounds {
  const { experts, topK, decodeTokens } = traffic
  const maxRequests = maxBatchOf(profile, traffic)
  const meanContext = contextOf(traffic)
  const step = (batch: number, active: number) => {
    const windowed = profile.decode.windows?.map(({ tokens }) => batch * Math.min(tokens, meanContext))
    // the fullest rank has at least its share
    return stepUs(profile, batch, active / topology.ranks, batch * meanContext, windowed)
  }
  const perSecond = (batch: number, us: number) => (topology.decode * batch * 1e6) / (us * decodeTokens)
  const decode = perSecond(maxRequests, step(maxRequests, topK))
  const prefill = prefillBound(profile, traffic, topology)
  const highest = Math.min(MAX_RATE, decode, prefill ?? Infinity)
  const lowest = Math.min(highest, ALONE * perSecond(1, step(1, topK)))
  const drawnEvenly = (batch: number) => experts * (1 - (1 - topK / experts) ** batch)
  let batch = 0
  while (batch < maxRequests && step(batch + 1, drawnEvenly(batch + 1)) <= sloTpotMs * 1000) batch++
  const start = batch === 0 ? lowest : perSecond(batch, step(batch, drawnEvenly(batch)))
  return {
    aloneMs: step(1, topK) / 1000,
    lowest,
    start: Math.min(highest, Math.max(lowest, start)),
    highest,
    prefill,
  }
}

export interface RunLoad {
  readonly profile: CostProfile
  readonly traffic: Traffic
  readonly topology: Topology
  readonly sloTpotMs: number
}

/**
 * Requests of a run at a rate: as many as requested, and more if those would arrive before the first workers
 * are full. A request that keeps the SLO takes at most its tokens times the SLO, and workers hold no more
 * than their maximum batch.
 */
export function requestsFor(
  rate: number,
  requested: number,
  { profile, traffic, topology, sloTpotMs }: RunLoad,
): number {
  const inFlight = Math.min(
    (rate * traffic.decodeTokens * sloTpotMs) / 1000,
    topology.decode * maxBatchOf(profile, traffic),
  )
  return Math.min(
    MAX_RUN_FACTOR * requested,
    Math.max(requested, 100 * Math.ceil((FILLS * inFlight) / WARM_UP / 100)),
  )
}

/** In full steps. */
function prefillBound(profile: CostProfile, { promptTokens }: Traffic, { prefill }: Topology): number | null {
  if (prefill === 0) return null
  const { prefillTokensPerStep } = DEFAULT_LIMITS
  return Math.min(
    MAX_RATE,
    (prefill * 1e6 * prefillTokensPerStep) / (prefillUs(profile, prefillTokensPerStep) * promptTokens),
  )
}

const contextOf = ({ promptTokens, decodeTokens }: Traffic): number => promptTokens + decodeTokens / 2

function maxBatchOf({ kv }: CostProfile, traffic: Traffic): number {
  return Math.max(1, Math.min(DEFAULT_LIMITS.maxBatch, Math.floor(kv.capacityTokens / contextOf(traffic))))
}
