import { dimensionsOf } from '../signature/signature.ts'
import { rowMatrixOf } from '../math/row-matrix.ts'
import { byLoad } from './by-load.ts'
import type { Candidate, DecodePolicy, PolicyDescriptor } from './decode-policy.ts'
import { leastLoaded } from './least-loaded.ts'

export interface BandOptions {
  /**
   * Unit centroids, one row per worker: [workers × dimensions]. Workers beyond the last row, or with a row of
   * NaN, have none.
   */
  readonly centroids: Float32Array
  readonly dimensions: number
  /** Width of the locality band: 0 follows similarity alone, 1 load alone. Paper §6.3 recommends 0.1. */
  readonly tau?: number
}

/**
 * Locality-band routing, the paper's rule (§4.3.2): the least loaded of the workers whose similarity to the
 * request is within `tau` of the best. Load counts only inside the band, so traffic that all centroids
 * resemble in the same way piles up on a few workers; `eldr` (eldr.ts) bounds that.
 */
export function band({ centroids, dimensions, tau = 0.1 }: BandOptions): DecodePolicy {
  const matrix = rowMatrixOf(centroids, dimensions)
  const similarity = new Float32Array(matrix.rows)
  const known = Array.from(similarity, (_, row) => !Number.isNaN(centroids[row * dimensions]!))
  const hasCentroid = ({ worker }: Candidate) => known[worker] === true
  const of = ({ worker }: Candidate) => similarity[worker] ?? NaN // unknown for a worker without a centroid

  return {
    name: 'band',
    pick({ signature }, candidates, ctx) {
      if (signature === undefined || signature.length !== dimensions)
        return byLoad(candidates, ctx, 'no_signature')
      matrix.similarities(signature, similarity)
      const similarities = new Float32Array(candidates.length)
      let best = -Infinity
      for (let at = 0; at < candidates.length; at++) {
        const value = of(candidates[at]!)
        similarities[at] = value
        if (value > best) best = value
      }
      // A worker without a centroid is always in the band, so it takes its share of the load. If no candidate
      // can be compared, only load counts.
      if (best === -Infinity)
        return byLoad(candidates, ctx, candidates.some(hasCentroid) ? 'no_signature' : 'no_centroid')
      const inBand = candidates.filter(candidate => !(of(candidate) < best - tau))
      const picked = leastLoaded(
        inBand,
        candidate => (hasCentroid(candidate) ? of(candidate) : -Infinity),
        ctx.random,
      )
      const reason = !hasCentroid(picked) ? 'no_centroid' : of(picked) === best ? 'band_hit' : 'band_spill'
      return { worker: picked.worker, reason, similarities, band: inBand.length }
    },
  }
}

export const BAND = {
  name: 'band',
  needs: ['clusters', 'signature'],
  reasons: ['band_hit', 'band_spill'],
  herds: true,
  setting: 'tau',
  create({ artifact, tau }) {
    const { centroids, model } = artifact!.primary
    return band({ centroids, dimensions: dimensionsOf(model), tau })
  },
} as const satisfies PolicyDescriptor
