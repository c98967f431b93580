import type { FillLayer } from './pair-space.ts'
import { TRANSFORM, type TransformName } from './transform.ts'

export interface LayerSource {
  /** Captured values [requests × layers × experts]. */
  readonly values: Uint16Array | Float32Array
  readonly layers: number
  readonly experts: number
  /** Requests to take, in this order. */
  readonly rows: Uint32Array
}

/** Fills one layer's rows with a transform's values. `idf`: [layers × experts], used by the transforms that are weighted. */
export function layerFill({ values, layers, experts, rows }: LayerSource, transform: TransformName, idf: Float32Array): FillLayer {
  const { shape, idf: weighted } = TRANSFORM[transform]
  return (layer, out, stride) => {
    for (let r = 0; r < rows.length; r++) {
      const from = (rows[r]! * layers + layer) * experts
      out.set(values.subarray(from, from + experts), r * stride)
    }
    // One loop a shape: a call for each value would cost more than the arithmetic.
    if (shape === 'sqrt') for (let at = 0; at < out.length; at++) out[at] = Math.sqrt(out[at]!)
    else if (shape === 'binary') for (let at = 0; at < out.length; at++) out[at] = out[at]! > 0 ? 1 : 0
    if (!weighted) return
    const weights = idf.subarray(layer * experts, (layer + 1) * experts)
    for (let to = 0; to < out.length; to += stride) for (let e = 0; e < experts; e++) out[to + e]! *= weights[e]!
  }
}
