import { meanInterval } from './confidence.ts'
import type { SimulationResult } from './result.ts'

/**
 * Share of the arrivals in the measured span by which the requests in flight may grow, in addition to the
 * following.
 */
const BEHIND = 0.05
/**
 * Random variation: this many standard deviations of the difference of two Poisson numbers, in flight at the
 * beginning of the span and at its end.
 */
const CHANCE = 3
/**
 * A cluster that is still filling up: requests that take longer than the warm-up, which is this share of the
 * span.
 */
const WARM_UP_TO_SPAN = 0.2

/**
 * True if more requests arrive than the cluster can serve, so that the number in flight keeps growing: all
 * times of such a run depend on its length. Runs differ only in the seed. `decodeTokens`: mean per request
 * (default: from the runs).
 */
export function isOverloaded(runs: readonly SimulationResult[], decodeTokens?: number): boolean {
  const mean = (value: (run: SimulationResult) => number) => meanInterval(runs.map(value)).mean
  const tokens = decodeTokens ?? mean(run => run.tokensPerSecond / run.requestsPerSecond)
  // Measured requests are those that arrive in the span.
  const behind = mean(run => 1 - (run.requestsPerSecond * run.spanSeconds) / run.requests)
  const chance = CHANCE * mean(run => Math.sqrt((2 * run.inflight) / runs.length) / run.requests)
  const filling = Math.max(
    0,
    mean(run => (run.tpotMs.mean * tokens) / 1000 / run.spanSeconds) - WARM_UP_TO_SPAN,
  )
  return behind > BEHIND + chance + filling
}
