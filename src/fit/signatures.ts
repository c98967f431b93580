import { centroidsOf } from '../math/centroids.ts'
import { packUnit } from '../math/packed-rows.ts'
import { dimensionsOf, type SignatureModel, writeSignature } from '../signature/signature.ts'
import { TRANSFORM } from '../signature/transform.ts'
import { type FittedSignature, unpackSignatures } from './artifact.ts'
import { type Calibration, valuesOf } from './calibration.ts'
import type { Selection } from './select-signature.ts'

/** A fitted signature before clustering. */
export type Signatures = Omit<FittedSignature, 'centroids'>

/** Signatures of the calibration requests that have one; `rows` lists them. */
export function signaturesOf(
  data: Calibration,
  selection: Selection,
  recentHalfLife: number | undefined,
): Signatures & { rows: number[] } {
  const model = modelOf(data, selection)
  const width = dimensionsOf(model)
  const values = valuesOf(data, TRANSFORM[selection.transform].source)!
  const cells = data.layers * data.experts
  const signatures = new Int16Array((values.length / cells) * width)
  const row = new Float32Array(width)
  const rows: number[] = []
  for (let r = 0; r < values.length / cells; r++) {
    if (!writeSignature(model, values.subarray(r * cells, (r + 1) * cells), row)) continue
    packUnit(row, signatures.subarray(rows.length * width, (rows.length + 1) * width))
    rows.push(r)
  }
  return {
    ...about(model, selection, recentHalfLife),
    signatures: signatures.subarray(0, rows.length * width),
    rows,
  }
}

/**
 * Plain-count signatures of the same requests, with centroids over the same clusters: a hand-off without
 * recent counts finds the region it would have found with them.
 */
export function fallbackSignature(
  data: Calibration,
  selection: Selection,
  rows: readonly number[],
  clusterOf: Int32Array,
  workers: number,
) {
  const model = modelOf(data, selection)
  const width = dimensionsOf(model)
  const cells = data.layers * data.experts
  const signatures = new Int16Array(rows.length * width)
  const row = new Float32Array(width)
  rows.forEach((r, at) => {
    writeSignature(model, data.counts.subarray(r * cells, (r + 1) * cells), row)
    packUnit(row, signatures.subarray(at * width, (at + 1) * width))
  })
  const centroids = centroidsOf(unpackSignatures({ model, signatures }), clusterOf, workers)
  return { ...about(model, selection, undefined), signatures, centroids } satisfies FittedSignature
}

function modelOf(
  { experts, layers: modelLayers, idf }: Calibration,
  { transform, layers }: Selection,
): SignatureModel {
  const weights = new Float32Array(layers.length * experts).fill(1)
  if (TRANSFORM[transform].idf)
    layers.forEach((layer, at) =>
      weights.set(idf.subarray(layer * experts, (layer + 1) * experts), at * experts),
    )
  return { transform, modelLayers, experts, layers: Uint16Array.from(layers), weights }
}

function about(
  model: SignatureModel,
  { rho, curve, transform }: Selection,
  recentHalfLife: number | undefined,
) {
  return {
    model,
    recentHalfLife: TRANSFORM[transform].source === 'recent' ? recentHalfLife : undefined,
    rho,
    curve,
  }
}
