/**
 * The decode step of a randomly mixed batch: the baseline for the gain of a policy, without a second cluster.
 * If b requests are drawn independently from the trace, each at a random step, expert e of a layer is idle
 * with probability (1 − p̄)^b, where p̄ is the share of all decode steps of the trace that use it; so b
 * requests use Σ 1 − (1 − p̄)^b experts.
 */
import { type CostProfile, layerWeights, stepParts } from '../cost/profile.ts'
import type { Trace } from '../trace/trace.ts'

export interface Step {
  readonly batch: number
  /** Distinct experts, mean over the profile's layers. */
  readonly active: number
  readonly ms: number
}

export interface MixedBatch {
  /** Active experts of a batch of this size, which may be fractional. */
  experts(batch: number): number
  /** The mixed step with the same tokens per second as this one: a slower step has a larger batch. */
  instead(step: Step): Step
}

/** Larger batches use nearly all experts. */
const MAX_BATCH = 512
const ROUNDS = 24

export async function mixedBatch(trace: Trace, profile: CostProfile): Promise<MixedBatch> {
  const [counts, steps] = [await trace.decodeCounts(), await trace.decodeSteps()]
  const width = trace.layers * trace.experts
  const fired = new Float64Array(width)
  for (let request = 0; request < trace.requests; request++)
    for (let at = 0; at < width; at++) fired[at]! += counts[request * width + at]!
  let all = 0
  for (const count of steps) all += count
  return mixedBatchOf(
    fired.map(count => count / all),
    trace.experts,
    profile,
  )
}

/** `shares`: [layers][experts], share of decode steps that use the expert. */
export function mixedBatchOf(shares: Float64Array, experts: number, profile: CostProfile): MixedBatch {
  const ofBatch = expertsOfBatch(shares, experts, layerWeights(profile.shape.layers, shares.length / experts))
  const { perExpert, perRequest } = stepParts(profile)
  const [msPerExpert, msPerRequest] = [perExpert / 1000, perRequest / 1000]

  function between(batch: number): number {
    const from = Math.min(Math.floor(batch), MAX_BATCH - 1)
    const part = Math.min(1, batch - from)
    return ofBatch[from]! * (1 - part) + ofBatch[from + 1]! * part
  }

  return {
    experts: between,
    instead({ batch, active, ms }) {
      // Time not explained by experts and requests (base, contexts, delays of the machine) stays the same.
      // Step time grows more slowly than the batch, so that this converges.
      const otherMs = ms - msPerExpert * active - msPerRequest * batch
      let [mixed, mixedMs] = [batch, ms]
      for (let round = 0; round < ROUNDS; round++) {
        mixedMs = otherMs + msPerExpert * between(mixed) + msPerRequest * mixed
        mixed = (batch / ms) * mixedMs
      }
      return { batch: mixed, active: between(mixed), ms: mixedMs }
    },
  }
}

/** [MAX_BATCH + 1] */
function expertsOfBatch(shares: Float64Array, experts: number, weights: Float64Array): Float64Array {
  const idle = new Float64Array(shares.length).fill(1)
  return Float64Array.from({ length: MAX_BATCH + 1 }, () => {
    let active = 0
    for (let at = 0; at < shares.length; at++) {
      active += weights[Math.floor(at / experts)]! * (1 - idle[at]!)
      idle[at]! *= 1 - shares[at]!
    }
    return active
  })
}
