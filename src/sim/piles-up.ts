import { meanInterval } from './confidence.ts'
import type { SimulationResult } from './result.ts'

/** Share of the arrivals in the measured span by which those in flight may grow beside what follows. */
const BEHIND = 0.05
/** Chance: so many deviations of the difference of two Poisson numbers in flight, at the beginning of the span and at its end. */
const CHANCE = 3
/** A cluster that still fills up: requests that take longer than the warm-up, which is this much of the span. */
const WARM_UP_TO_SPAN = 0.2

/**
 * Whether more requests come than the cluster can serve, so that those in flight grow for as long as it lasts: every time that such a run
 * shows hangs on its length. Runs differ in the seed alone. `decodeTokens`: that a request makes, in the mean; as the runs have it unless told.
 */
export function pilesUp(runs: readonly SimulationResult[], decodeTokens?: number): boolean {
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
