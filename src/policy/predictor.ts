import type { Artifact } from '../fit/artifact.ts'
import { dimensionsOf } from '../signature/signature.ts'
import { isServable } from '../signature/transform.ts'
import type { PolicyOptions, RoutableRequest } from './decode-policy.ts'
import { createNeighbours, type Neighbours, type NeighboursOptions } from './neighbours.ts'
import { MAX_CHANCE } from './union-state.ts'

/** Predicts the chance that one decode step fires each expert of each layer, from a request's prefill. */
export interface Predictor {
  /** Layers × experts. */
  readonly cells: number
  /**
   * Chances of one request, or undefined if it has no usable counts. The array is reused for the next
   * request.
   */
  chances(request: RoutableRequest): Float32Array | undefined
}

export interface PredictorOptions {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  /**
   * Calibration requests with known decode patterns; without them the prediction uses the prompt's own shares
   * alone.
   */
  readonly neighbours?: Neighbours
  /**
   * Weight of the prompt's own shares relative to its neighbours' patterns. Tuned on held-out calibration
   * requests of both lab16 traces.
   */
  readonly ownWeight?: number
}

/**
 * A token selects top_k experts per layer, so an expert's share of the prompt's choices × top_k is the chance
 * that one token fires it. Shares of a short prompt are noisy; the decode patterns of calibration requests
 * with close signatures are not. Blended, the squared error is about half of either. Neighbours that do not
 * resemble the prompt are not believed (`trustIn`).
 */
export function createPredictor({
  layers,
  experts,
  topK,
  neighbours,
  ownWeight = 0.3,
}: PredictorOptions): Predictor {
  const cells = layers * experts
  const chances = new Float32Array(cells)
  const pattern = new Float32Array(cells)
  let last: { request: RoutableRequest; usable: boolean } | undefined

  /** Writes the prompt's shares × top_k to `chances`. False if the counts cannot be used. */
  function readShares(counts: NonNullable<RoutableRequest['counts']>): boolean {
    for (let layer = 0, from = 0; layer < layers; layer++, from += experts) {
      let sum = 0
      for (let c = from; c < from + experts; c++) sum += counts[c]!
      // a layer of zeros or invalid numbers: an incomplete capture
      if (!(sum > 0 && sum < Infinity)) return false
      const scale = topK / sum
      for (let c = from; c < from + experts; c++) chances[c] = Math.min(MAX_CHANCE, counts[c]! * scale)
    }
    return true
  }

  function predict({ counts, signature }: RoutableRequest): boolean {
    if (counts === undefined || counts.length !== cells || !readShares(counts)) return false
    if (signature === undefined || neighbours === undefined) return true
    if (!neighbours.meanPattern(signature, pattern)) return true
    const trust = trustIn(pattern, chances, topK / experts)
    const own = ownWeight + (1 - ownWeight) * (1 - trust)
    for (let c = 0; c < cells; c++) chances[c] = own * chances[c]! + (1 - own) * pattern[c]!
    return true
  }
  return {
    cells,
    chances(request) {
      // `dispatched` asks for the request that `pick` has just seen.
      if (last?.request !== request) last = { request, usable: predict(request) }
      return last.usable ? chances : undefined
    },
  }
}

/**
 * How far neighbours can be believed, from 0 to 1: the part of their pattern's differences from chance that
 * the prompt's own shares show too, which is the slope of a line through both. It is near 1 if the artifact
 * fits the traffic, about 0.7 with the artifact of other traffic, and 0 if its experts are those of
 * another model version or random (docs/evidence/harm.md).
 */
export function trustIn(pattern: Float32Array, shares: Float32Array, chance: number): number {
  let [products, squares] = [0, 0]
  for (let c = 0; c < pattern.length; c++) {
    const difference = pattern[c]! - chance
    products += difference * (shares[c]! - chance)
    squares += difference * difference
  }
  return products > 0 ? Math.min(1, products / squares) : 0
}

/** From an artifact, or from the prompt's counts alone if there is none. */
export function predictorOf({
  artifact,
  shape,
  searchedClusters,
}: Pick<PolicyOptions, 'artifact' | 'shape'> & Pick<NeighboursOptions, 'searchedClusters'>): Predictor {
  const { layers, experts, topK } = artifact?.about ?? shape!
  const neighbours = artifact === undefined ? undefined : neighboursOf(artifact, searchedClusters)
  return createPredictor({ layers, experts, topK, neighbours })
}

/** The calibration requests of an artifact; undefined if it holds no decode patterns. */
function neighboursOf(
  { primary, calibration }: Artifact,
  searchedClusters: number | undefined,
): Neighbours | undefined {
  if (calibration.patterns === undefined || !isServable(primary.model.transform)) return undefined
  return createNeighbours({
    centroids: primary.centroids,
    signatures: primary.signatures,
    clusterOf: calibration.clusterOf,
    patterns: calibration.patterns,
    dimensions: dimensionsOf(primary.model),
    searchedClusters,
  })
}
