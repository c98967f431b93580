/**
 * Artifacts with random numbers in place of what was fitted: what routing costs with them bounds what any
 * wrong artifact can cost.
 */
import type { Artifact } from '../../fit/artifact.ts'
import { packUnit } from '../../math/packed-rows.ts'
import { createRandom, type Random } from '../../math/random.ts'
import { dimensionsOf } from '../../signature/signature.ts'

export const RANDOM_ARTIFACTS = { centroids, random } as const

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
