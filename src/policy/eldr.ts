import { dimensionsOf } from '../signature/signature.ts'
import { rowMatrixOf } from '../math/row-matrix.ts'
import { byLoad } from './by-load.ts'
import type { Candidate, DecodePolicy, PolicyDescriptor, RoutableRequest } from './decode-policy.ts'
import { loadsOf } from './load.ts'

export interface EldrOptions {
  /**
   * Unit centroids, one row per worker: [workers × dimensions]. Workers beyond the last row, or with a row of
   * NaN, have none.
   */
  readonly centroids: Float32Array
  readonly dimensions: number
  /** Price of load: 0 follows similarity alone, 1 load almost alone. */
  readonly tau?: number
}

/** In large batches, a worker with τ more similarity may have a sixth of the mean load more. */
const PRICE_PER_TAU = 6
/**
 * At this mean load the price is double, above it less, below it more: a small batch has few experts to
 * share, while one request more makes it much slower. Chosen on calibration traces: p99 stays within +3 % of
 * jsq at any load, where 0 costs up to +9 %. Four gateways that share nothing lose a seventh of their gain at
 * batch 23, since each sees a quarter of the batch.
 */
const SMALL_BATCH = 3
/**
 * The bound was tested at 0.1. With artifacts of other traffic, p99 at τ = 0.02 is 4 to 7 % above jsq (8P16D,
 * lab16, 150 to 400 requests per second); at 0.05 it is at most 1.1 %.
 */
export const MIN_BOUNDED_TAU = 0.05
/** A usual similarity follows about the last 20 requests; the first ones count equally. */
const LEAST_WEIGHT = 0.05

/**
 * Routing by similarity and load together. A worker's score is its cosine to the request, less its usual
 * cosine, less a price for its load relative to the mean; the highest score wins. A worker that resembles all
 * traffic equally has no advantage: the usual cosine takes it away, and any imbalance that remains is paid
 * for. So centroids that do not match the traffic cost almost nothing (docs/evidence/harm.md).
 *
 * Usual cosines are state about traffic and not about load: `dispatched` moves them and `released` does not
 * move them back. They follow this gateway's requests only, as its own decisions do.
 */
export function eldr({ centroids, dimensions, tau = 0.1 }: EldrOptions): DecodePolicy {
  const price = PRICE_PER_TAU * tau
  const matrix = rowMatrixOf(centroids, dimensions)
  const cosines = new Float32Array(matrix.rows)
  const usual = new Float64Array(matrix.rows)
  const known = Array.from(usual, (_, row) => !Number.isNaN(centroids[row * dimensions]!))
  const hasCentroid = ({ worker }: Candidate) => known[worker] === true
  let last: { readonly request: RoutableRequest; readonly usable: boolean } | undefined
  let seen = 0

  /** Writes `cosines`. False if the request cannot be compared. */
  function compare(request: RoutableRequest): boolean {
    // `dispatched` asks for the request that `pick` has just seen.
    if (last?.request === request) return last.usable
    const { signature } = request
    const fits = signature?.length === dimensions
    if (fits) matrix.similarities(signature, cosines)
    const usable = fits && known.every((has, row) => !has || Number.isFinite(cosines[row]!))
    last = { request, usable }
    return usable
  }

  /**
   * Cosine above the usual one of each candidate. A worker without a centroid has the mean of the others:
   * neither advantage nor penalty.
   */
  function fitsOf(candidates: readonly Candidate[]): Float64Array {
    const fits = Float64Array.from(candidates, candidate =>
      hasCentroid(candidate) ? cosines[candidate.worker]! - usual[candidate.worker]! : NaN,
    )
    const compared = fits.filter(fit => !Number.isNaN(fit))
    const mean = compared.reduce((sum, fit) => sum + fit, 0) / compared.length
    return fits.map(fit => (Number.isNaN(fit) ? mean : fit))
  }

  return {
    name: 'eldr',
    ownRequestsOnly: true,
    pick(request, candidates, ctx) {
      if (!compare(request)) return byLoad(candidates, ctx, 'no_signature')
      if (!candidates.some(hasCentroid)) return byLoad(candidates, ctx, 'no_centroid')
      const similarities = Float32Array.from(candidates, candidate =>
        hasCentroid(candidate) ? cosines[candidate.worker]! : NaN,
      )
      const fits = fitsOf(candidates)
      const loads = loadsOf(candidates)
      const total = candidates.reduce((sum, { inflight }) => sum + inflight, 0)
      const mean = Math.max(1, total / candidates.length)
      const perRequest = (price / mean) * (1 + SMALL_BATCH / mean)
      let [best, most, equals] = [0, -Infinity, 0]
      for (let at = 0; at < candidates.length; at++) {
        const score = fits[at]! - perRequest * loads[at]!
        if (score < most) continue
        equals = score > most ? 1 : equals + 1
        if (equals === 1 || ctx.random() * equals < 1) best = at // ties have equal chances
        most = score
      }
      const picked = candidates[best]!
      const isBestFit = fits[best] === Math.max(...fits)
      const reason = !hasCentroid(picked) ? 'no_centroid' : isBestFit ? 'match_hit' : 'match_spill'
      return { worker: picked.worker, reason, similarities }
    },
    dispatched(request) {
      if (!compare(request)) return
      const weight = Math.max(LEAST_WEIGHT, 1 / ++seen)
      for (let row = 0; row < usual.length; row++)
        if (known[row]) usual[row]! += weight * (cosines[row]! - usual[row]!)
    },
  }
}

export const ELDR = {
  name: 'eldr',
  needs: ['clusters', 'signature'],
  reasons: ['match_hit', 'match_spill'],
  herds: true,
  setting: 'tau',
  minBoundedTau: MIN_BOUNDED_TAU,
  create({ artifact, tau }) {
    const { centroids, model } = artifact!.primary
    return eldr({ centroids, dimensions: dimensionsOf(model), tau })
  },
} as const satisfies PolicyDescriptor
