/** What live requests are compared with: the centroids in force and how close calibration requests are. */
import type { Artifact } from '../fit/artifact.ts'
import { rowMatrixOf } from '../math/row-matrix.ts'
import { dimensionsOf } from '../signature/signature.ts'
import { TRANSFORM } from '../signature/transform.ts'

export interface LiveModel {
  readonly width: number
  readonly source: string
  readonly hasFallback: boolean
  readonly quantiles: Artifact['about']['bestSimilarity']
  /** Highest cosine to any centroid, whatever the state of its worker. */
  best(signature: Float32Array): number
}

export function liveModel({ primary, fallback, about }: Artifact): LiveModel {
  const width = dimensionsOf(primary.model)
  const matrix = rowMatrixOf(primary.centroids, width)
  const cosines = new Float32Array(matrix.rows)
  return {
    width,
    source: TRANSFORM[primary.model.transform].source,
    hasFallback: fallback !== undefined,
    quantiles: about.bestSimilarity,
    best(signature) {
      matrix.similarities(signature, cosines)
      return cosines.reduce((a, b) => Math.max(a, b), -1)
    },
  }
}
