/**
 * Artifacts that do not fit the traffic, made from one that does: what routing costs with them bounds what a
 * stale or wrong artifact can cost.
 */
import type { Artifact, FittedSignature } from '../fit/artifact.ts'
import { packUnit } from '../math/packed-rows.ts'
import { createRandom, type Random } from '../math/random.ts'
import { dimensionsOf } from '../signature/signature.ts'

export const WRONG_ARTIFACTS = { shuffled, centroids, random } as const

/** Experts permuted in each layer: the artifact of a model version with the same shape and other experts. */
function shuffled(artifact: Artifact, seed: number): Artifact {
  const { layers, experts } = artifact.about
  const source = createRandom(seed)
  const order = Array.from({ length: layers }, () => permutation(experts, source))
  /** Rows of [rows × kept layers × experts], each layer in its new order. */
  const moved = <T extends Float32Array | Int16Array | Uint8Array>(values: T, kept: ArrayLike<number>): T => {
    const out = values.slice() as T
    for (let from = 0, layer = 0; from < values.length; from += experts, layer = (layer + 1) % kept.length)
      for (let e = 0; e < experts; e++) out[from + order[kept[layer]!]![e]!] = values[from + e]!
    return out
  }
  const signature = ({ model, ...fitted }: FittedSignature): FittedSignature => ({
    ...fitted,
    model: { ...model, weights: moved(model.weights, model.layers) },
    centroids: moved(fitted.centroids, model.layers),
    signatures: moved(fitted.signatures, model.layers),
  })
  const { patterns } = artifact.calibration
  const all = Array.from({ length: layers }, (_, layer) => layer)
  return {
    ...artifact,
    primary: signature(artifact.primary),
    fallback: artifact.fallback && signature(artifact.fallback),
    calibration: { ...artifact.calibration, patterns: patterns && moved(patterns, all) },
  }
}

/** Random centroids; the calibration requests are as they were. */
function centroids(artifact: Artifact, seed: number): Artifact {
  const { primary } = artifact
  const source = createRandom(seed)
  const drawn = new Float32Array(primary.centroids.length)
  eachRow(drawn, dimensionsOf(primary.model), row => drawUnit(row, source))
  return { ...artifact, primary: { ...primary, centroids: drawn } }
}

/** Everything random: centroids, signatures, and decode patterns of any size. */
function random(artifact: Artifact, seed: number): Artifact {
  const { primary, calibration } = centroids(artifact, seed)
  const source = createRandom(seed).fork(1)
  const dimensions = dimensionsOf(primary.model)
  const signatures = new Int16Array(primary.signatures.length)
  const unit = new Float32Array(dimensions)
  eachRow(signatures, dimensions, row => {
    drawUnit(unit, source)
    row.set(packUnit(unit))
  })
  const patterns = calibration.patterns?.map(() => source.below(256))
  return { ...artifact, primary: { ...primary, signatures }, calibration: { ...calibration, patterns } }
}

function eachRow<T extends Float32Array | Int16Array | Uint8Array>(
  values: T,
  width: number,
  change: (row: T, at: number) => void,
): void {
  for (let at = 0; at * width < values.length; at++)
    change(values.subarray(at * width, (at + 1) * width) as T, at)
}

/** A unit vector of positive numbers, as signatures are. */
function drawUnit(out: Float32Array, source: Random): void {
  for (let d = 0; d < out.length; d++) out[d] = source.uniform() ** 2
  const length = Math.hypot(...out)
  for (let d = 0; d < out.length; d++) out[d]! /= length
}

function permutation(size: number, source: Random): number[] {
  const order = Array.from({ length: size }, (_, at) => at)
  for (let at = size - 1; at > 0; at--) {
    const other = source.below(at + 1)
    ;[order[at], order[other]] = [order[other]!, order[at]!]
  }
  return order
}
