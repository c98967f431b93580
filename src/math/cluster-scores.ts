import { unitVectors } from './centroids.ts'
import { gramOf, type PackedRows, UNIT } from './packed-rows.ts'

/**
 * Costs (negative cosines) of every point to every cluster: [points × clusters]. The array is reused from
 * call to call.
 */
export interface ClusterScores {
  /** Cosines of all points to one point. */
  toPoint(point: number, out: Float64Array): void
  /** Makes every cluster one point: its centroid is that point at unit length. */
  ofSeeds(seeds: readonly number[]): Float64Array
  /** No cluster is empty. */
  ofClusters(clusterOf: Int32Array): Float64Array
}

/** Typical number of iterations of a run on the traces; used only to choose the cheaper of two methods. */
const USUAL_ITERATIONS = 12
/** Cost of a product of a point and a centroid, in products of two points: a centroid has two planes. */
const CENTROID_PRODUCT = 2

/**
 * Two ways to compute the same costs. With all products of two points (N²/2 of them, computed once), a point
 * that moves changes two columns by one row of products, and iterations are almost free. With centroids, each
 * iteration takes N·K products, fewer if few clusters change. The cheaper method is chosen, so work never
 * grows faster than N·K·iterations.
 */
export function createClusterScores(points: PackedRows, clusters: number, runs: number): ClusterScores {
  return points.rows / 2 <= clusters * runs * USUAL_ITERATIONS * CENTROID_PRODUCT && points.rows <= 8192
    ? scoresByProducts(points, clusters)
    : scoresByCentroids(points, clusters)
}

/**
 * x·c = Σ_j x·x_j / |Σ_j x_j| over the cluster's points j, and |Σ_j x_j|² is the sum of those sums over the
 * cluster. Sums are integers, so they do not drift.
 */
export function scoresByProducts(points: PackedRows, clusters: number): ClusterScores {
  const n = points.rows
  const gram = gramOf(points)
  const costs = new Float64Array(n * clusters)
  const sums = new Float64Array(clusters * n)
  const moves = createMoves(n)

  function add(sign: 1 | -1, cluster: number, point: number): void {
    for (let p = 0, at = cluster * n, of = point * n; p < n; p++, at++, of++) sums[at]! += sign * gram[of]!
  }
  return {
    toPoint(point, out) {
      for (let p = 0; p < n; p++) out[p] = gram[point * n + p]! / (UNIT * UNIT)
    },
    ofSeeds(seeds) {
      seeds.forEach((seed, k) => {
        const scale = scaleOf(gram[seed * n + seed]!)
        for (let p = 0; p < n; p++) costs[p * clusters + k] = gram[seed * n + p]! * scale
      })
      sums.fill(0)
      moves.forget()
      return costs
    },
    ofClusters(clusterOf) {
      const changed = moves.to(clusterOf, add)
      const squares = new Float64Array(clusters)
      for (let p = 0; p < n; p++) squares[clusterOf[p]!]! += sums[clusterOf[p]! * n + p]!
      for (const k of changed) {
        const scale = scaleOf(squares[k]!)
        for (let p = 0, at = k * n; p < n; p++, at++) costs[p * clusters + k] = sums[at]! * scale
      }
      return costs
    },
  }
}

/** Scores points against the centroids of the clusters that changed. */
export function scoresByCentroids(points: PackedRows, clusters: number): ClusterScores {
  const { rows: n, width } = points
  const costs = new Float64Array(n * clusters)
  const sums = new Float64Array(clusters * width)
  const moves = createMoves(n)
  const products = new Int32Array(n)

  return {
    toPoint(point, out) {
      points.products(point, 0, n, products)
      for (let p = 0; p < n; p++) out[p] = products[p]! / (UNIT * UNIT)
    },
    ofSeeds(seeds) {
      seeds.forEach((seed, k) => {
        points.products(seed, 0, n, products)
        const scale = scaleOf(products[seed]!)
        for (let p = 0; p < n; p++) costs[p * clusters + k] = products[p]! * scale
      })
      sums.fill(0)
      moves.forget()
      return costs
    },
    ofClusters(clusterOf) {
      const changed = moves.to(clusterOf, (sign, cluster, point) =>
        points.addRow(point, sign, sums, cluster * width),
      )
      const vectors = new Float64Array(changed.length * width)
      changed.forEach((k, at) => vectors.set(sums.subarray(k * width, (k + 1) * width), at * width))
      points.negatedProducts(unitVectors(vectors, width), changed, costs, clusters)
      return costs
    },
  }
}

/**
 * Turns products with a sum of points into costs, given the squared length of the sum: rows have length UNIT,
 * centroids length 1.
 */
function scaleOf(squares: number): number {
  return squares > 0 ? -1 / (Math.sqrt(squares) * UNIT) : 0
}

/** Tracks the assignment, so that only points that moved are added and subtracted. */
function createMoves(points: number) {
  const before = new Int32Array(points).fill(-1)
  return {
    forget: () => before.fill(-1),
    /** Clusters that changed, in ascending order. */
    to(clusterOf: Int32Array, move: (sign: 1 | -1, cluster: number, point: number) => void): number[] {
      const changed = new Set<number>()
      for (let p = 0; p < points; p++) {
        const [from, to] = [before[p]!, clusterOf[p]!]
        if (from === to) continue
        if (from >= 0) {
          move(-1, from, p)
          changed.add(from)
        }
        move(1, to, p)
        changed.add(to)
        before[p] = to
      }
      return Array.from(changed).sort((a, b) => a - b)
    },
  }
}
