import { TRANSFORM, type TransformName } from './transform.ts'

/** Everything needed to turn one request's captured values into its signature. */
export interface SignatureModel {
  readonly transform: TransformName
  /** MoE layers of the model, and experts in each. */
  readonly modelLayers: number
  readonly experts: number
  /** Kept layers, ascending. */
  readonly layers: Uint16Array
  /** [layers.length × experts]: IDF, or ones. */
  readonly weights: Float32Array
}

export const dimensionsOf = (model: SignatureModel): number => model.layers.length * model.experts

/**
 * The unit vector of one request (paper Eq. 2): captured values [modelLayers × experts], transformed and
 * weighted, kept layers only. False, and zeros, if nothing is left: the request has no signature and is
 * routed by load.
 */
export function writeSignature(
  model: SignatureModel,
  values: Uint16Array | Float32Array,
  out: Float32Array,
): boolean {
  const { experts, layers, weights } = model
  const shape = SHAPES[TRANSFORM[model.transform].shape]
  let squares = 0
  for (let kept = 0, to = 0; kept < layers.length; kept++) {
    for (let e = 0, from = layers[kept]! * experts; e < experts; e++, from++, to++) {
      const value = shape(values[from]!) * weights[to]!
      out[to] = value
      squares += value * value
    }
  }
  if (!(squares > 0 && squares < Infinity)) {
    out.fill(0)
    return false
  }
  const scale = 1 / Math.sqrt(squares)
  for (let d = 0; d < out.length; d++) out[d]! *= scale
  return true
}

export const SHAPES = {
  'as-is': (value: number) => value,
  sqrt: (value: number) => Math.sqrt(value),
  binary: (value: number) => (value > 0 ? 1 : 0),
} as const
