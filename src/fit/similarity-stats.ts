const QUANTILES = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1]

/** How well calibration requests match the centroids. */
export interface SimilarityStats {
  /** Mean cosine of a request to its own centroid, and the same for each cluster. */
  readonly meanSimilarity: number
  readonly clusterSimilarity: readonly number[]
  /**
   * Quantiles of the best cosine to any centroid. Live traffic below these has drifted away from the
   * calibration.
   */
  readonly bestSimilarity: readonly { readonly q: number; readonly value: number }[]
}

/**
 * costs: negative products of rows with unit centroids [requests × clusters]. lengths: of the rows, which are
 * close to 1 in fixed point.
 */
export function similarityStats(
  costs: Float64Array,
  lengths: Float64Array,
  clusterOf: ArrayLike<number>,
  clusters: number,
): SimilarityStats {
  const sums = new Float64Array(clusters)
  const sizes = new Float64Array(clusters)
  const best = new Float64Array(clusterOf.length)
  for (let r = 0, at = 0; r < best.length; r++, at += clusters) {
    let least = Infinity
    for (let k = 0; k < clusters; k++) least = Math.min(least, costs[at + k]!)
    // rounding may exceed 1
    const cosine = (cost: number) => (lengths[r]! > 0 ? Math.min(1, -cost / lengths[r]!) : 0)
    best[r] = cosine(least)
    sums[clusterOf[r]!]! += cosine(costs[at + clusterOf[r]!]!)
    sizes[clusterOf[r]!]!++
  }
  best.sort()
  return {
    meanSimilarity: sums.reduce((a, b) => a + b, 0) / best.length,
    clusterSimilarity: Array.from(sums, (sum, k) => (sizes[k]! > 0 ? sum / sizes[k]! : 0)),
    bestSimilarity: QUANTILES.map(q => ({ q, value: quantile(best, q) })),
  }
}

/** Linear between neighbours, like NumPy's default. */
function quantile(sorted: Float64Array, q: number): number {
  const at = q * (sorted.length - 1)
  const low = Math.floor(at)
  return sorted[low]! + (at - low) * ((sorted[low + 1] ?? sorted[low]!) - sorted[low]!)
}
