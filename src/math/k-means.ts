import { assignBalanced } from './balanced-assignment.ts'
import { type ClusterScores, createClusterScores } from './cluster-scores.ts'
import type { Random } from './random.ts'
import type { PackedRows } from './packed-rows.ts'

export interface KMeansOptions {
  readonly clusters: number
  /**
   * True: every cluster has at most ⌈N/K⌉ points, by exact assignment (paper §4.3.1). False: each point goes
   * to the nearest centroid.
   */
  readonly balanced: boolean
  readonly random: Random
  /** Runs with different seeds; the best one is kept. */
  readonly restarts?: number
  readonly maxIterations?: number
  /** Costs to the centroids that the first run starts from [points × clusters] (default: seeds). */
  readonly start?: Float64Array
  /** Cluster costs to reuse if a caller runs several times on the same points. */
  readonly scores?: ClusterScores
  readonly onIteration?: (restart: number, iteration: number) => void
}

export interface Clustering {
  /** The cluster of each row. */
  readonly clusterOf: Int32Array
  /**
   * Sum of the cosines of the rows to their centroids after each assignment of the best run. It is maximised
   * and never falls.
   */
  readonly history: readonly number[]
  /** Total number of assignments over all runs. */
  readonly iterations: number
}

/**
 * Spherical K-means on unit rows with k-means++ seeding, until no point moves. `centroidsOf` computes the
 * centroids of the result.
 */
export function kMeans(points: PackedRows, options: KMeansOptions): Clustering {
  const { clusters, random, restarts = 3, scores = createClusterScores(points, clusters, restarts) } = options
  if (clusters < 1 || clusters > points.rows)
    throw new RangeError(`cannot split ${points.rows} points into ${clusters} clusters`)
  let best: Clustering | undefined
  let iterations = 0
  for (let restart = 0; restart < restarts; restart++) {
    const run = oneRun(points, options, random.fork(restart), scores, restart)
    iterations += run.iterations
    if (best === undefined || run.history.at(-1)! > best.history.at(-1)!) best = run
  }
  return { ...best!, iterations }
}

function oneRun(
  points: PackedRows,
  { clusters, balanced, maxIterations = 100, start, onIteration }: KMeansOptions,
  random: Random,
  scores: ClusterScores,
  restart: number,
): Clustering {
  const prices = new Float64Array(clusters)
  const history: number[] = []
  const isWarm = start !== undefined && restart === 0
  let costs = isWarm ? start.slice() : scores.ofSeeds(seeds(points.rows, clusters, random, scores))
  let clusterOf: Int32Array | undefined
  let iteration = 0
  while (iteration < maxIterations) {
    onIteration?.(restart, iteration++)
    const next = balanced
      ? assignBalanced(
          { costs, points: points.rows, sinks: clusters, capacity: Math.ceil(points.rows / clusters) },
          prices,
        )
      : nearest(costs, points.rows, clusters)
    fillEmpty(next, costs, clusters)
    let objective = 0
    for (let p = 0; p < next.length; p++) objective -= costs[p * clusters + next[p]!]!
    // Moving points between equal costs changes nothing: without this check, duplicates could swap forever.
    const moved = clusterOf === undefined || next.some((cluster, point) => cluster !== clusterOf![point])
    if (!moved || objective <= history.at(-1)! + 1e-12 * points.rows) break
    history.push(objective)
    clusterOf = next
    costs = scores.ofClusters(clusterOf)
  }
  return { clusterOf: clusterOf!, history, iterations: iteration }
}

/**
 * k-means++: each further seed is drawn in proportion to 1 − cosine to the nearest seed so far, which is half
 * the squared distance of unit vectors.
 */
function seeds(points: number, clusters: number, random: Random, scores: ClusterScores): number[] {
  const chosen = [random.below(points)]
  const far = new Float64Array(points).fill(Infinity)
  const similarity = new Float64Array(points)
  while (chosen.length < clusters) {
    scores.toPoint(chosen.at(-1)!, similarity)
    let total = 0
    for (let p = 0; p < far.length; p++) total += far[p] = Math.min(far[p]!, Math.max(0, 1 - similarity[p]!))
    for (const seed of chosen) total -= far[seed]!
    for (const seed of chosen) far[seed] = 0
    let left = random.uniform() * total
    let pick = far.findIndex(weight => (left -= weight) < 0)
    // only duplicates are left
    if (pick < 0 || far[pick] === 0) pick = nthUnchosen(chosen, random.below(points - chosen.length))
    chosen.push(pick)
  }
  return chosen
}

function nthUnchosen(chosen: readonly number[], n: number): number {
  const taken = chosen.toSorted((a, b) => a - b)
  return taken.reduce((point, seed) => (seed <= point ? point + 1 : point), n)
}

function nearest(costs: Float64Array, points: number, clusters: number): Int32Array {
  const clusterOf = new Int32Array(points)
  for (let p = 0; p < points; p++) {
    for (let k = 1; k < clusters; k++)
      if (costs[p * clusters + k]! < costs[p * clusters + clusterOf[p]!]!) clusterOf[p] = k
  }
  return clusterOf
}

/**
 * An empty cluster takes the point that fits its own cluster worst, from a cluster with more than one point.
 * Alone, that point fits perfectly, and the points it left fit their mean at least as well as before, so the
 * objective does not fall.
 */
function fillEmpty(clusterOf: Int32Array, costs: Float64Array, clusters: number): void {
  const size = new Uint32Array(clusters)
  for (const cluster of clusterOf) size[cluster]!++
  for (let empty = size.indexOf(0); empty >= 0; empty = size.indexOf(0)) {
    let worst = -1
    const cost = (point: number) => costs[point * clusters + clusterOf[point]!]!
    for (let p = 0; p < clusterOf.length; p++)
      if (size[clusterOf[p]!]! > 1 && (worst < 0 || cost(p) > cost(worst))) worst = p
    const before = cost(worst)
    size[clusterOf[worst]!]!--
    size[empty] = 1
    clusterOf[worst] = empty
    costs[worst * clusters + empty] = before
  }
}
