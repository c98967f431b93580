/** The numbers of one run, ready for tables and JSON. Times are in milliseconds. */
import type { CostProfile } from '../cost/profile.ts'
import { type Quantiles, quantilesOf } from './histogram.ts'
import type { Metrics } from './metrics.ts'
import type { PrefillWorker } from './prefill-worker.ts'
import type { DecodeWorker } from './decode-worker.ts'
import { type Topology, topologyText } from './topology.ts'

export interface SimulationResult {
  readonly policy: string
  /** null where prefill is not simulated. */
  readonly prefillPolicy: string | null
  readonly topology: string
  readonly profile: string
  readonly seed: number
  /** Measured requests, and all that ran. */
  readonly requests: number
  readonly allRequests: number
  readonly spanSeconds: number
  /** From arrival to prefill's token; null where prefill is not simulated. */
  readonly ttftMs: Quantiles | null
  /** (last token − first token made by decode) / (tokens made by decode − 1), of requests that have two. */
  readonly tpotMs: Quantiles
  readonly itlMs: Quantiles
  /** From arrival to the last token. */
  readonly latencyMs: Quantiles
  /** Distinct experts of a step, mean over the profile's layers; the mean counts a step once for each of its tokens. */
  readonly activeExperts: number
  /** The same of the fullest rank: what an expert-parallel step pays for. Equal on one rank. */
  readonly fullestRankExperts: number
  readonly activeByBatch: readonly {
    readonly batch: number
    readonly steps: number
    readonly active: number
  }[]
  /** Of a step, counted once for each of its tokens. */
  readonly batch: number
  /** Mean over time, from arrival to last token. */
  readonly inflight: number
  /** Fullest decode worker over the mean one: requests in flight at decisions, and tokens made. 1 is even. */
  readonly imbalance: { readonly inflight: number; readonly tokens: number }
  /** Tokens that decode made. */
  readonly tokensPerSecond: number
  readonly requestsPerSecond: number
  /** Measured requests that kept the SLO: their share, and that share of the requests that arrive or, where fewer do, end in a second. */
  readonly goodput: { readonly share: number; readonly requestsPerSecond: number }
  readonly reasons: Readonly<Record<string, number>>
  readonly preemptions: number
  /** Prompt tokens that prefill workers had kept; null where prefill is not simulated. */
  readonly prefixHitShare: number | null
}

export interface Names {
  readonly policy: string
  readonly prefillPolicy: string | null
  readonly topology: Topology
  readonly profile: CostProfile
  readonly seed: number
}

export function resultOf(
  { policy, prefillPolicy, topology, profile, seed }: Names,
  metrics: Metrics,
  prefillers: readonly PrefillWorker[],
  decoders: readonly DecodeWorker[],
): SimulationResult {
  const { histograms, tokens, tokensOfWorker, stepsOfBatch, activeOfBatch } = metrics
  const spanSeconds = (metrics.toUs - metrics.fromUs) / 1e6
  const prompts = prefillers.reduce((sum, worker) => sum + worker.promptTokens, 0)
  const hits = prefillers.reduce((sum, worker) => sum + worker.hitTokens, 0)
  const share = metrics.good / metrics.endedMeasured
  return {
    policy,
    prefillPolicy,
    topology: topologyText(topology),
    profile: profile.name,
    seed,
    requests: metrics.endedMeasured,
    allRequests: metrics.ended,
    spanSeconds,
    ttftMs: prefillers.length === 0 ? null : quantilesOf(histograms.ttftUs, 1e-3),
    tpotMs: quantilesOf(histograms.tpotUs, 1e-3),
    itlMs: quantilesOf(histograms.itlUs, 1e-3),
    latencyMs: quantilesOf(histograms.latencyUs, 1e-3),
    activeExperts: metrics.activeTokens / tokens,
    fullestRankExperts: metrics.fullestTokens / tokens,
    activeByBatch: Array.from(stepsOfBatch, (steps, batch) => ({
      batch,
      steps,
      active: activeOfBatch[batch]! / steps,
    })).filter(({ steps }) => steps > 0),
    batch: metrics.batchTokens / tokens,
    inflight: metrics.inflightUs / (metrics.toUs - metrics.fromUs),
    imbalance: {
      inflight: metrics.largestInflight / metrics.meanInflight,
      tokens: (tokensOfWorker.reduce((a, b) => Math.max(a, b)) * tokensOfWorker.length) / tokens,
    },
    tokensPerSecond: tokens / spanSeconds,
    requestsPerSecond: metrics.endedInSpan / spanSeconds,
    goodput: {
      share,
      requestsPerSecond: (share * Math.min(metrics.endedMeasured, metrics.endedInSpan)) / spanSeconds,
    },
    reasons: Object.fromEntries(metrics.reasons),
    preemptions: decoders.reduce((sum, worker) => sum + worker.preemptions, 0),
    prefixHitShare: prefillers.length === 0 ? null : hits / prompts,
  }
}
