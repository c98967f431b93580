import { assignBalanced } from '../math/balanced-assignment.ts'
import { centroidsOf } from '../math/centroids.ts'
import { createClusterScores } from '../math/cluster-scores.ts'
import { type Clustering, kMeans } from '../math/k-means.ts'
import { createRandom } from '../math/random.ts'
import type { PackedRows } from '../math/packed-rows.ts'
import { rowMatrixOf } from '../math/row-matrix.ts'
import { type SimilarityStats, similarityStats } from './similarity-stats.ts'

export interface ClusterOptions {
  readonly workers: number
  readonly balance: 'exact' | 'none'
  readonly restarts: number
  readonly seed: number
  /**
   * Also run plain K-means, to show the effect of the balance constraint. A refit skips it, because a gateway
   * waits for the result.
   */
  readonly compare?: boolean
  /** Unit centroids that the first run starts from [workers × width] (default: drawn rows). */
  readonly start?: Float32Array
  readonly onProgress?: (what: string, done: number, total: number) => void
}

export interface FittedClusters extends Clustering {
  /** Unit vectors [workers × width]. */
  readonly centroids: Float32Array
  readonly sizes: readonly number[]
  /** Cluster sizes of plain K-means on the same rows, descending; empty if it did not run. */
  readonly vanillaSizes: readonly number[]
  readonly stats: SimilarityStats
}

/**
 * One cluster per decode worker (paper §4.3.1), and optionally plain K-means. The same rows and seed give the
 * same clusters.
 */
export function clusterSignatures(
  points: PackedRows,
  { workers, balance, restarts, seed, compare = false, start, onProgress }: ClusterOptions,
): FittedClusters {
  const scores = createClusterScores(points, workers, restarts + 1)
  const startCosts = start && costsTo(points, start, workers)
  const run = (balanced: boolean, runs: number, label: number) =>
    kMeans(points, {
      clusters: workers,
      balanced,
      restarts: runs,
      random: createRandom(seed).fork(label),
      scores,
      start: startCosts,
      onIteration: (restart, iteration) =>
        onProgress?.(`clusters, run ${restart + 1} iteration ${iteration + 1}`, restart, runs),
    })
  const vanilla = balance === 'none' ? run(false, restarts, 0) : compare ? run(false, 1, 0) : undefined
  const chosen = balance === 'none' ? vanilla! : run(true, restarts, 1)
  const lengths = Float64Array.from({ length: points.rows }, (_, row) => points.length(row))
  return {
    ...chosen,
    iterations: chosen.iterations + (vanilla === undefined || vanilla === chosen ? 0 : vanilla.iterations),
    centroids: centroidsOf(points, chosen.clusterOf, workers),
    stats: similarityStats(scores.ofClusters(chosen.clusterOf), lengths, chosen.clusterOf, workers),
    sizes: sizesOf(chosen.clusterOf, workers),
    vanillaSizes: vanilla === undefined ? [] : sizesOf(vanilla.clusterOf, workers).toSorted((a, b) => b - a),
  }
}

/** Negative products of rows and unit centroids [rows × clusters]. */
export function costsTo(points: PackedRows, centroids: Float32Array, clusters: number): Float64Array {
  const costs = new Float64Array(points.rows * clusters)
  const columns = Array.from({ length: clusters }, (_, k) => k)
  points.negatedProducts(Float64Array.from(centroids), columns, costs, clusters)
  return costs
}

export function sizesOf(clusterOf: ArrayLike<number>, clusters: number): number[] {
  const sizes = Array.from({ length: clusters }, () => 0)
  for (let r = 0; r < clusterOf.length; r++) sizes[clusterOf[r]!]!++
  return sizes
}

/**
 * Numbers the new clusters so that workers keep their region (centroid k belongs to the k-th decode worker):
 * the new centroids are matched to the old ones by optimal assignment; the remaining ones get the remaining
 * numbers. Entry k is the new number of cluster k.
 */
export function matchClusters(old: Float32Array, fresh: Float32Array, width: number): Int32Array {
  const freshCount = fresh.length / width
  // workers are added and removed at the end of the list
  const kept = Math.min(old.length / width, freshCount)
  const similarity = new Float32Array(kept)
  const matrix = rowMatrixOf(old.subarray(0, kept * width), width)
  // Clusters are the points; the first `kept` numbers are those of the old workers, and all other numbers are
  // equivalent.
  const costs = new Float64Array(freshCount * freshCount)
  for (let k = 0; k < freshCount; k++) {
    matrix.similarities(fresh.subarray(k * width, (k + 1) * width), similarity)
    for (let number = 0; number < kept; number++) costs[k * freshCount + number] = -similarity[number]!
    costs[k * freshCount + k]! -= 1e-9 // among equal centroids, a cluster keeps its number
  }
  return assignBalanced({ costs, points: freshCount, sinks: freshCount, capacity: 1 })
}

/** Clusters with their new numbers. */
export function renumber(clusters: FittedClusters, to: Int32Array, width: number): FittedClusters {
  const centroids = new Float32Array(clusters.centroids.length)
  const sizes: number[] = []
  const clusterSimilarity: number[] = []
  to.forEach((number, k) => {
    centroids.set(clusters.centroids.subarray(k * width, (k + 1) * width), number * width)
    sizes[number] = clusters.sizes[k]!
    clusterSimilarity[number] = clusters.stats.clusterSimilarity[k]!
  })
  const stats = { ...clusters.stats, clusterSimilarity }
  return { ...clusters, centroids, sizes, stats, clusterOf: clusters.clusterOf.map(cluster => to[cluster]!) }
}
