/**
 * Costs of a decode step, learnt from streams: the time between the tokens of a stream is the mean time of
 * the steps it was in, and the policy knows how many experts and requests it expected there.
 *
 * Experts and requests of a worker grow together, so that streams of one worker cannot tell their costs
 * apart. Therefore all workers share one shape, the proportion of base, expert and request, and each has a
 * speed. The shape is a ridge regression on the streams of all workers, with the given cost as its prior; the
 * speed of a worker is the mean logarithm of measured over expected time. Old streams are forgotten, every
 * residual is clipped, and shape and speeds are bounded, so that neither stalled streams nor a worker with
 * impossible times can attract or repel all traffic. If most workers have residuals beyond the clip on the
 * same side, the level itself has changed: it is set again at once.
 *
 * It has no clock and no random numbers: the same streams give the same costs.
 */
import { boundedSolve } from '../math/bounded-solve.ts'
import { type StepCosts, sumOf, type UnionCost } from './step-cost.ts'
import { DEFAULT_COST } from './union.ts'

export interface LearntCosts extends Required<StepCosts> {
  /** Streams of the worker that were counted; 0 if its cost is that of the cluster. */
  streams(worker: number): number
  /** Another worker may take this index. */
  forget(worker: number): void
}

/** The median of this many streams sets the level. Until then the prior holds. */
const FIRST_STREAMS = 16
/** The influence of a stream on the shape halves with this many streams after it, of all workers. */
const SHAPE_HALF_LIFE = 2_000
/**
 * Weight of the prior, in streams. Errors in the expected experts make requests look more expensive than they
 * are, and experts cheaper: a strong prior limits that. Chosen among 1, 10, 40 and 160 on calibration traces
 * (bench/step-cost.mjs --held-out): below 40 it costs up to 1.5 points of p50. The price: 5,000 streams cover
 * only a third of the way to parts that are very different from the prior. The time of a whole step, and so
 * the speed of each worker, does not depend on it.
 */
const PRIOR_WEIGHT = 40
/** The share of each part in a step is at least the prior's divided by this. */
const MAX_BELOW_PRIOR = 8
/** The shape is computed again after this many streams. */
const LEARN_EVERY = 16
/** Residuals, as logarithms, are clipped to this. */
const MAX_RESIDUAL = 0.3
/** The level has changed if the median of this many last residuals is beyond the clip on most workers. */
const RECENT_STREAMS = 8
/** The speed of a worker follows about this many of its last streams. */
const SPEED_STREAMS = 64
/** A worker begins with the cluster's speed, which counts as this many of its streams. */
const FIRST_SPEED_STREAMS = 8
/**
 * Bounds on how many times slower and faster than the cluster a worker can be. A worker that is wrongly taken
 * for a slow one costs its share of the cluster at most; one that is wrongly taken for a fast one is
 * overloaded, so that bound is narrow.
 */
const MAX_SLOWER = Math.log(2)
const MAX_FASTER = Math.log(1.1)
/**
 * Smaller differences of speed are mostly errors in the expected experts: a difference of this size counts
 * half. Streams of workers that differ more count less for the shape.
 */
const SIMILAR_SPEED = 0.06
/**
 * A worker that has had no stream while the others had this many each is priced like the cluster again: one
 * that seemed slow would otherwise never get the requests that show that it has recovered.
 */
const FORGET_AFTER = 64

const PARTS = 3

interface WorkerSpeed {
  /** Logarithm of the time of a step over that of the shape. */
  speed: number
  streams: number
  /** When its last stream ended, in streams of all workers. */
  lastSeen: number
  /** Its last residuals, not clipped, in any order. */
  recent: number[]
}

/** A prior that costs nothing has no proportions: the built-in one replaces it. */
export function learntCosts(asked: UnionCost): LearntCosts {
  const prior = sumOf(asked) > 0 ? asked : DEFAULT_COST
  const decay = 0.5 ** (1 / SHAPE_HALF_LIFE)
  const given = Float64Array.of(prior.base, prior.perExpert, prior.perRequest)
  let shape = given
  /** Weighted sums over streams: products of the columns, columns times values, columns. */
  const products = new Float64Array(PARTS * PARTS)
  const moments = new Float64Array(PARTS)
  const sums = new Float64Array(PARTS)
  let weight = 0
  /** Logarithms of measured over expected times, until there are enough of them. */
  let first: number[] | undefined = []
  let seen = 0
  /**
   * Logarithm of the time of a step over that of the shape: of each worker, and their median, in which a
   * worker counts once however many streams it has.
   */
  let clusterSpeed = 0
  const workers = new Map<number, WorkerSpeed>()
  const costs = new Map<number, UnionCost>()
  const row = new Float64Array(PARTS)

  const apartOf = (worker: number): number =>
    Math.max(-MAX_FASTER, Math.min(MAX_SLOWER, (workers.get(worker)?.speed ?? clusterSpeed) - clusterSpeed))

  /** 1 for a worker as fast as the cluster, ½ at `SIMILAR_SPEED`, near 0 for one that is unlike it. */
  const likeness = (apart: number): number => SIMILAR_SPEED ** 2 / (apart ** 2 + SIMILAR_SPEED ** 2)

  function speedOf(worker: number): number {
    const apart = apartOf(worker)
    return clusterSpeed + apart * (1 - likeness(apart))
  }

  /** Everything is in shares of the mean step, so that neither bounds nor the prior's weight have units. */
  function learnShape(): void {
    const means = sums.map(sum => sum / weight)
    const priorStep = means.reduce((step, mean, part) => step + given[part]! * mean, 0)
    const shares = means.map((mean, part) => (given[part]! * mean) / priorStep)
    const matrix = products.map((product, at) => {
      const [a, b] = [Math.floor(at / PARTS), at % PARTS]
      return product / (means[a]! * means[b]!) + (a === b ? PRIOR_WEIGHT : 0)
    })
    const values = moments.map((moment, part) => moment / means[part]! + PRIOR_WEIGHT * shares[part]!)
    const low = shares.map(share => share / MAX_BELOW_PRIOR)
    shape = boundedSolve(matrix, values, low, ALL).map((share, part) => share / means[part]!)
  }

  function addToShape(value: number, by: number): void {
    weight = decay * weight + by
    for (let a = 0; a < PARTS; a++) {
      sums[a] = decay * sums[a]! + by * row[a]!
      moments[a] = decay * moments[a]! + by * row[a]! * value
      for (let b = 0; b < PARTS; b++)
        products[PARTS * a + b] = decay * products[PARTS * a + b]! + by * row[a]! * row[b]!
    }
  }

  function learnSpeed(worker: number, ratio: number): void {
    let own = workers.get(worker)
    if (own === undefined)
      workers.set(worker, (own = { speed: clusterSpeed, streams: 0, lastSeen: 0, recent: [] }))
    const residual = ratio - own.speed
    own.recent.push(residual)
    if (own.recent.length > RECENT_STREAMS) own.recent.shift()
    own.streams++
    own.speed += clipped(residual, MAX_RESIDUAL) / Math.min(FIRST_SPEED_STREAMS + own.streams, SPEED_STREAMS)
    own.lastSeen = seen
  }

  /**
   * Moves all speeds by the median of the workers' median residuals if most workers have one beyond the clip,
   * on the same side. A worker counts once however many streams it has, as in the level of the cluster.
   */
  function followLevel(): void {
    const medians = Array.from(workers.values(), ({ recent }) =>
      recent.length < RECENT_STREAMS ? 0 : median([...recent]),
    )
    const beyond = (side: number) => medians.filter(each => side * each > MAX_RESIDUAL).length
    if (2 * Math.max(beyond(1), beyond(-1)) <= workers.size) return
    const by = median(medians)
    for (const own of workers.values()) {
      own.speed += by
      own.recent = []
    }
  }

  function forgetIdle(): void {
    for (const [worker, { lastSeen }] of workers)
      if (seen - lastSeen > FORGET_AFTER * workers.size) workers.delete(worker)
  }

  return {
    of(worker) {
      if (first !== undefined) return prior
      let cost = costs.get(worker)
      if (cost === undefined) {
        const factor = Math.exp(speedOf(worker))
        const [base, perExpert, perRequest] = shape as Iterable<number> as [number, number, number]
        cost = { base: factor * base, perExpert: factor * perExpert, perRequest: factor * perRequest }
        costs.set(worker, cost)
      }
      return cost
    },
    observe(worker, { tokenUs, experts, requests }) {
      const expected = shape[0]! + shape[1]! * experts + shape[2]! * requests
      const ratio = Math.log(tokenUs / expected)
      if (!Number.isFinite(ratio) || !(experts > 0) || !(requests > 0)) return
      if (first !== undefined) {
        first.push(ratio)
        if (first.length < FIRST_STREAMS) return
        clusterSpeed = median(first)
        first = undefined
      }
      seen++
      learnSpeed(worker, ratio)
      row[0] = 1 / expected
      row[1] = experts / expected
      row[2] = requests / expected
      addToShape(Math.exp(clipped(ratio - speedOf(worker), MAX_RESIDUAL)), likeness(apartOf(worker)))
      if (seen % LEARN_EVERY !== 0) return void costs.delete(worker)
      learnShape()
      forgetIdle()
      followLevel()
      clusterSpeed = median(Array.from(workers.values(), each => each.speed))
      costs.clear()
    },
    streams: worker => workers.get(worker)?.streams ?? 0,
    forget(worker) {
      workers.delete(worker)
      costs.delete(worker)
    },
  }
}

/** No part is more than the whole step. */
const ALL = new Float64Array(PARTS).fill(1)

function median(values: number[]): number {
  values.sort((a, b) => a - b)
  const half = values.length / 2
  return (values[Math.ceil(half) - 1]! + values[Math.floor(half)]!) / 2
}

function clipped(value: number, limit: number): number {
  return Math.max(-limit, Math.min(limit, value))
}
