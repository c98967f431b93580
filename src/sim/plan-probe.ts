/** One probe of a plan: a policy at a rate on a number of decode workers, all seeds, held against the SLO. */
import { type Interval, meanInterval } from './confidence.ts'
import { pilesUp } from './piles-up.ts'
import type { SimulationResult } from './result.ts'

/** What a plan must keep: the means over seeds of the 99th percentiles. */
export interface PlanSlo {
  readonly tpotMs: number
  readonly ttftMs?: number
}

/** What a load breaks: a promise, or what the workers can do at all, so that requests pile up before prefill or before decode. */
export type Limit = 'tpot' | 'ttft' | 'prefill_rate' | 'decode_rate'

/** Plain numbers, means over the seeds unless they are intervals. */
export interface Probe {
  readonly rate: number
  readonly decoders: number
  /** Nothing breaks. */
  readonly holds: boolean
  readonly limits: readonly Limit[]
  readonly tpotP99Ms: Interval
  /** null where prefill is not simulated. */
  readonly ttftP99Ms: Interval | null
  readonly tpotMeanMs: number
  readonly activeExperts: number
  /** The same on one rank. */
  readonly fullestRankExperts: number
  readonly batch: number
  /** That decode made. */
  readonly tokensPerSecond: number
  /** Requests of a run, how long it was measured, and how long a request took from arrival to last token. */
  readonly requests: number
  readonly spanSeconds: number
  readonly requestSeconds: number
}

/** `decodeTokens`: that a request makes, in the mean. */
export function probeOf(
  rate: number,
  decoders: number,
  runs: readonly SimulationResult[],
  slo: PlanSlo,
  decodeTokens: number,
): Probe {
  const over = (value: (run: SimulationResult) => number) => meanInterval(runs.map(value))
  const mean = (value: (run: SimulationResult) => number) => over(value).mean
  const tpotP99Ms = over(run => run.tpotMs.p99)
  const ttftP99Ms = runs.every(run => run.ttftMs !== null) ? over(run => run.ttftMs!.p99) : null
  const limits: Limit[] = []
  if (tpotP99Ms.mean > slo.tpotMs) limits.push('tpot')
  if (ttftP99Ms !== null && ttftP99Ms.mean > (slo.ttftMs ?? Infinity)) limits.push('ttft')
  const atPrefill = mean(run => (run.ttftMs?.mean ?? 0) / run.latencyMs.mean) > 0.5
  if (pilesUp(runs, decodeTokens)) limits.push(atPrefill ? 'prefill_rate' : 'decode_rate')
  return {
    rate,
    decoders,
    holds: limits.length === 0,
    limits,
    tpotP99Ms,
    ttftP99Ms,
    tpotMeanMs: mean(run => run.tpotMs.mean),
    activeExperts: mean(run => run.activeExperts),
    fullestRankExperts: mean(run => run.fullestRankExperts),
    batch: mean(run => run.batch),
    tokensPerSecond: mean(run => run.tokensPerSecond),
    requests: runs[0]!.allRequests,
    spanSeconds: mean(run => run.spanSeconds),
    requestSeconds: mean(run => run.latencyMs.mean) / 1000,
  }
}

/** Whether prefill is what breaks: then no number of decode workers helps. */
export const isPrefillBound = ({ limits }: Pick<Probe, 'limits'>): boolean =>
  limits.includes('ttft') || limits.includes('prefill_rate')
