import { boundedSolve } from '../math/bounded-solve.ts'

/** Cost of a decode step in microseconds. `cost/profile.ts` derives it from a profile. */
export interface UnionCost {
  /** Of an empty batch. */
  readonly base: number
  /** Per active expert in every layer. */
  readonly perExpert: number
  /** Per request in the batch. */
  readonly perRequest: number
}

/** A stream that has ended. */
export interface ObservedStream {
  /** Mean time between its tokens. */
  readonly tokenUs: number
  /** Means over its life on the worker: experts that a step was expected to fire per layer, and requests. */
  readonly experts: number
  readonly requests: number
}

/** Cost of a step on each decode worker. */
export interface StepCosts {
  of(worker: number): UnionCost
  /** Absent if costs are fixed. */
  observe?(worker: number, stream: ObservedStream): void
}

export function fixedCosts(cost: UnionCost): StepCosts {
  return { of: () => cost }
}

export interface LearntCosts extends Required<StepCosts> {
  /** Streams of the worker that were used. */
  observations(worker: number): number
  /** Another worker takes this index. */
  forget(worker: number): void
}

/** A shorter stream tells little about a step. */
export const MIN_STREAM_TOKENS = 8
/** Streams before the first estimate; their median sets the level. */
const FIRST = Number(process.env['C_FIRST'] ?? 16)
/** The influence of a stream on the shape halves after this many streams of all workers. */
const SHAPE_HALF_LIFE = Number(process.env['C_HALF'] ?? 2_000)
/** Weight of the prior, in streams. */
const PRIOR_WEIGHT = Number(process.env['C_PRIOR'] ?? 1)
/** A share of a step is at least the prior's divided by this. */
const MAX_BELOW_PRIOR = 8
/** Residuals beyond this, as logarithms, count as this: a stalled stream moves nothing by more. */
const CLIP = Number(process.env['C_CLIP'] ?? 0.3)
/** A worker's speed follows about this many of its last streams, and that of the cluster as many as all. */
const SPEED_STREAMS = Number(process.env['C_SPEED'] ?? 64)
const POOLED_STREAMS = 1_024
/** A worker starts with the cluster's speed, as if it had been seen on this many streams. */
const POOLED_WEIGHT = Number(process.env['C_POOLED'] ?? 8)
/** A worker is at most this many times as fast or slow as the cluster. */
const MAX_SPEED = 2

export function learntCosts(prior: UnionCost): LearntCosts {
  const decay = 0.5 ** (1 / SHAPE_HALF_LIFE)
  const given = Float64Array.of(prior.base, prior.perExpert, prior.perRequest)
  /** Shape of a step's cost, shared by all workers: base, per expert, per request. */
  let shape = given
  const gram = new Float64Array(9)
  const moments = new Float64Array(3)
  /** Sums of the parts' columns, and their weight. */
  const sums = new Float64Array(3)
  let weight = 0
  let first: number[] | undefined = []
  /** Logarithms of the time of a step over that of the shape. */
  let pooled = 0
  let pooledCount = 0
  const speeds: number[] = []
  const counts: number[] = []
  const made: (UnionCost | undefined)[] = []

  const row = new Float64Array(3)

  function learnShape(): void {
    const matrix = new Float64Array(9)
    const values = new Float64Array(3)
    const [low, high] = [new Float64Array(3), new Float64Array(3)]
    let priorStep = 0
    for (let j = 0; j < 3; j++) priorStep += (given[j]! * sums[j]!) / weight
    // In shares of the mean step, so that the weight of the prior has no unit.
    for (let j = 0; j < 3; j++) {
      const mean = sums[j]! / weight
      const share = (given[j]! * mean) / priorStep
      for (let k = 0; k < 3; k++) matrix[3 * j + k] = gram[3 * j + k]! / (mean * (sums[k]! / weight))
      matrix[4 * j]! += PRIOR_WEIGHT
      values[j] = moments[j]! / mean + PRIOR_WEIGHT * share
      low[j] = share / MAX_BELOW_PRIOR
      high[j] = 1
    }
    const shares = boundedSolve(matrix, values, low, high)
    shape = shares.map((share, j) => (share * weight) / sums[j]!)
  }

  const speedOf = (worker: number): number => {
    const limit = Math.log(MAX_SPEED)
    return pooled + clipped((speeds[worker] ?? pooled) - pooled, limit)
  }

  return {
    of(worker) {
      if (first !== undefined) return prior
      const factor = Math.exp(speedOf(worker))
      return { base: factor * shape[0]!, perExpert: factor * shape[1]!, perRequest: factor * shape[2]! }
    },
    observe(worker, { tokenUs, experts, requests }) {
      if (!(tokenUs > 0 && tokenUs < Infinity && experts > 0 && requests > 0)) return
      let expected = shape[0]! + shape[1]! * experts + shape[2]! * requests
      if (first !== undefined) {
        first.push(Math.log(tokenUs / expected))
        if (first.length < FIRST) return
        first.sort((a, b) => a - b)
        pooled = first[FIRST / 2]!
        first = undefined
        return
      }
      const ratio = Math.log(tokenUs / expected)
      pooledCount++
      pooled += clipped(ratio - pooled, CLIP) / Math.min(FIRST + pooledCount, POOLED_STREAMS)
      const speed = (speeds[worker] ??= pooled)
      const count = (counts[worker] = (counts[worker] ?? 0) + 1)
      const residual = clipped(ratio - speed, CLIP)
      speeds[worker] = speed + residual / Math.min(POOLED_WEIGHT + count, SPEED_STREAMS)
      row[0] = 1 / expected
      row[1] = experts / expected
      row[2] = requests / expected
      const value = Math.exp(clipped(ratio - speedOf(worker), CLIP))
      weight = decay * weight + 1
      for (let j = 0; j < 3; j++) {
        sums[j] = decay * sums[j]! + row[j]!
        moments[j] = decay * moments[j]! + row[j]! * value
        for (let k = 0; k < 3; k++) gram[3 * j + k] = decay * gram[3 * j + k]! + row[j]! * row[k]!
      }
      learnShape()
    },
    observations: worker => counts[worker] ?? 0,
    forget(worker) {
      delete speeds[worker]
      delete counts[worker]
      delete made[worker]
    },
  }
}

function clipped(value: number, limit: number): number {
  return Math.max(-limit, Math.min(limit, value))
}
