import { packedRows, type PackedRows } from '../math/packed-rows.ts'
import { dimensionsOf, type SignatureModel } from '../signature/signature.ts'
import type { LayerCurve } from './summary.ts'

/**
 * The result of a fit: everything a gateway needs to route, and everything a refit needs to make clusters for
 * another number of workers without the trace.
 */
export interface Artifact {
  readonly about: ArtifactAbout
  /** The signature that requests are routed by. */
  readonly primary: FittedSignature
  /**
   * For hand-offs without recent counts if `primary` reads those: the same clusters, with signatures of plain
   * counts.
   */
  readonly fallback?: FittedSignature
  readonly calibration: CalibrationSet
}

export interface FittedSignature {
  readonly model: SignatureModel
  /** Half-life of recent counts in tokens; absent if the signature reads plain counts. */
  readonly recentHalfLife?: number
  /**
   * ρ with the kept layers, and the curve whose peak it is. Absent without decode data or if layers were
   * given by hand.
   */
  readonly rho?: number
  readonly curve?: LayerCurve
  /** Unit vectors [workers × dimensions]. */
  readonly centroids: Float32Array
  /**
   * Signatures of the calibration requests in fixed point [requests × dimensions]: compact, and the input of
   * clustering.
   */
  readonly signatures: Int16Array
}

/** The calibration requests that have a signature. */
export interface CalibrationSet {
  readonly requests: number
  /** [requests] */
  readonly clusterOf: Uint16Array
  /** Decode patterns [requests × layers × experts] in 255ths; absent if the trace had no decode data. */
  readonly patterns?: Uint8Array
  /** [requests] index into `domains`. */
  readonly domain?: Uint8Array
}

export interface ArtifactAbout {
  readonly model: string
  readonly layers: number
  readonly experts: number
  readonly topK: number
  readonly workers: number
  readonly workload?: string
  readonly domains: readonly string[]
  readonly balance: 'exact' | 'none'
  readonly seed: number
  readonly restarts: number
  /** ρ over all layers of each transform that was measured. */
  readonly transforms: Readonly<Record<string, number>>
  readonly sizes: readonly number[]
  readonly meanSimilarity: number
  /** Mean cosine of each cluster's requests to its centroid. */
  readonly clusterSimilarity: readonly number[]
  readonly bestSimilarity: readonly { readonly q: number; readonly value: number }[]
  readonly traceSha256: string
  readonly traceRequests: number
  /** ELDR release that wrote it. */
  readonly version: string
  /** Present if it was refitted from live traffic. */
  readonly lineage?: Lineage
}

/** Where an artifact that was refitted from live traffic comes from. */
export interface Lineage {
  /** Hash of the artifact that it replaced. */
  readonly parentSha256: string
  /** Unix time of the refit. */
  readonly atMs: number
  /** Live requests that it was fitted on, and others that it was judged on. */
  readonly sampleRequests: number
  readonly heldOutRequests: number
  /**
   * Share of the cost of a decode step that it should save against its parent; mean ± half of a 95 %
   * interval.
   */
  readonly gain: number
  readonly gainHalf: number
  /** Whether the judgement used decode counts that workers reported, or predictions from prompts. */
  readonly judgedBy: 'reported' | 'predicted'
}

/**
 * Rows of an artifact's signatures. A fit clusters these packed values, so that a refit gives exactly the
 * same clusters.
 */
export function unpackSignatures({
  model,
  signatures,
}: Pick<FittedSignature, 'model' | 'signatures'>): PackedRows {
  return packedRows(signatures, dimensionsOf(model))
}

/**
 * Decode patterns in 255ths of the steps, for the requests at `rows`. A request without decode steps has a
 * pattern of zeros.
 */
export function packPatterns(
  decodeCounts: Uint16Array,
  decodeSteps: ArrayLike<number>,
  rows: ArrayLike<number>,
  cells: number,
): Uint8Array {
  const patterns = new Uint8Array(rows.length * cells)
  for (let r = 0; r < rows.length; r++) {
    const scale = decodeSteps[rows[r]!]! > 0 ? 255 / decodeSteps[rows[r]!]! : 0
    for (let c = 0, from = rows[r]! * cells, to = r * cells; c < cells; c++, from++, to++)
      patterns[to] = Math.round(decodeCounts[from]! * scale)
  }
  return patterns
}
