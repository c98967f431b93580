import { centroidsOf } from './centroids.ts'
import { CACHED_ROWS, createRowMatrix, gramOf, type UnitRows } from './row-matrix.ts'

/** Costs (negative cosines) of every point to every cluster: [points × clusters]. The array is reused from call to call. */
export interface ClusterScores {
  /** Cosines of all points to one of them. */
  toPoint(point: number, out: Float32Array): void
  ofSeeds(seeds: readonly number[]): Float64Array
  ofClusters(clusterOf: Int32Array): Float64Array
}

/** Iterations that a run takes before nothing moves, as seen on the traces: used only to choose the cheaper of two ways. */
const USUAL_ITERATIONS = 12
/** What a product of a point and a centroid costs, in products of two points, which are kept in integers. */
const CENTROID_PRODUCT = 4

/**
 * Two ways to the same costs. With all products of two points at hand (N²/2 of them, once), a point that moves changes two columns by
 * one row of products, and iterations cost next to nothing. Against centroids, each iteration takes N·K products. Whichever needs
 * less time is taken, so that the work never grows faster than N·K·iterations.
 */
export function createClusterScores(points: UnitRows, clusters: number, restarts: number): ClusterScores {
  return points.rows / 2 <= clusters * restarts * USUAL_ITERATIONS * CENTROID_PRODUCT && points.rows <= 8192
    ? scoresByProducts(points, clusters)
    : scoresByCentroids(points, clusters)
}

/** x·c = Σ_j x·x_j / |Σ_j x_j| over the cluster's points j, and |Σ_j x_j|² is the sum of those sums over the cluster. */
export function scoresByProducts(points: UnitRows, clusters: number): ClusterScores {
  const n = points.rows
  const gram = gramOf(points)
  const costs = new Float64Array(n * clusters)
  const sums = new Float64Array(clusters * n)
  const before = new Int32Array(n).fill(-1)

  function add(sign: number, cluster: number, point: number): void {
    for (let p = 0, at = cluster * n, of = point * n; p < n; p++, at++, of++) sums[at]! += sign * gram[of]!
  }
  return {
    toPoint: (point, out) => out.set(gram.subarray(point * n, (point + 1) * n)),
    ofSeeds(seeds) {
      seeds.forEach((seed, k) => {
        for (let p = 0; p < n; p++) costs[p * clusters + k] = -gram[seed * n + p]!
      })
      sums.fill(0)
      before.fill(-1)
      return costs
    },
    ofClusters(clusterOf) {
      const squares = new Float64Array(clusters)
      for (let p = 0; p < n; p++) {
        if (before[p] === clusterOf[p]) continue
        if (before[p]! >= 0) add(-1, before[p]!, p)
        add(1, clusterOf[p]!, p)
        before[p] = clusterOf[p]!
      }
      for (let p = 0; p < n; p++) squares[clusterOf[p]!]! += sums[clusterOf[p]! * n + p]!
      for (let k = 0; k < clusters; k++) {
        const scale = squares[k]! > 0 ? -1 / Math.sqrt(squares[k]!) : 0
        for (let p = 0, at = k * n; p < n; p++, at++) costs[p * clusters + k] = sums[at]! * scale
      }
      return costs
    },
  }
}

/** Points against centroids, a block of points at a time. */
export function scoresByCentroids(points: UnitRows, clusters: number): ClusterScores {
  const { rows: n, width } = points
  const costs = new Float64Array(n * clusters)
  const block = createRowMatrix(CACHED_ROWS, width)
  const similarity = new Float32Array(CACHED_ROWS)

  function scoreAll(centroids: readonly Float32Array[]): Float64Array {
    for (let from = 0; from < n; from += CACHED_ROWS) {
      const rows = Math.min(CACHED_ROWS, n - from)
      for (let r = 0; r < rows; r++) points.copyRow(from + r, block.row(r))
      centroids.forEach((centroid, k) => {
        block.similarities(centroid, similarity)
        for (let r = 0; r < rows; r++) costs[(from + r) * clusters + k] = -similarity[r]!
      })
    }
    return costs
  }
  return {
    toPoint: (point, out) => points.similaritiesOfRow(point, 0, n, out),
    ofSeeds: seeds => scoreAll(seeds.map(seed => rowOf(points, seed))),
    ofClusters(clusterOf) {
      const { centroids } = centroidsOf(points, clusterOf, clusters)
      return scoreAll(Array.from({ length: clusters }, (_, k) => centroids.subarray(k * width, (k + 1) * width)))
    },
  }
}

function rowOf(points: UnitRows, index: number): Float32Array {
  const row = new Float32Array(points.width)
  points.copyRow(index, row)
  return row
}
