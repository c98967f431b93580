import type { FillLayer } from './pair-space.ts'
import { TRANSFORM, type TransformName } from './transform.ts'

export interface LayerSource {
  /** Captured values [requests × layers × experts]. */
  readonly values: Uint16Array | Float32Array
  readonly layers: number
  readonly experts: number
  /** Requests to read, in this order. */
  readonly rows: Uint32Array
}

/**
 * Fills one layer's rows with a transform's values. `idf`: [layers × experts], used by the weighted
 * transforms.
 */
export function layerFill(
  { values, layers, experts, rows }: LayerSource,
  transform: TransformName,
  idf: Float32Array,
): FillLayer {
  const { shape, idf: weighted } = TRANSFORM[transform]
  return (layer, out, stride) => {
    const at = { layers, experts, rows, layer, stride }
    if (values instanceof Uint16Array) widen(values, at, out)
    else copy(values, at, out)
    if (shape === 'sqrt') takeRoots(out)
    else if (shape === 'binary') markUsed(out)
    if (weighted) weigh(out, stride, idf.subarray(layer * experts, (layer + 1) * experts))
  }
}

interface Place {
  readonly layers: number
  readonly experts: number
  readonly rows: Uint32Array
  readonly layer: number
  readonly stride: number
}

// One function per loop and per type: V8 optimises a loop for the types it has seen. A loop that has seen
// both types, or that is first entered inside a larger function, takes four times as long.

function widen(
  values: Uint16Array,
  { layers, experts, rows, layer, stride }: Place,
  out: Float32Array,
): void {
  for (let r = 0; r < rows.length; r++) {
    const from = (rows[r]! * layers + layer) * experts
    for (let e = 0, to = r * stride; e < experts; e++, to++) out[to] = values[from + e]!
  }
}

function copy(
  values: Float32Array,
  { layers, experts, rows, layer, stride }: Place,
  out: Float32Array,
): void {
  for (let r = 0; r < rows.length; r++) {
    const from = (rows[r]! * layers + layer) * experts
    for (let e = 0, to = r * stride; e < experts; e++, to++) out[to] = values[from + e]!
  }
}

function takeRoots(out: Float32Array): void {
  for (let d = 0; d < out.length; d++) out[d] = Math.sqrt(out[d]!)
}

function markUsed(out: Float32Array): void {
  for (let d = 0; d < out.length; d++) out[d] = out[d]! > 0 ? 1 : 0
}

function weigh(out: Float32Array, stride: number, weights: Float32Array): void {
  for (let to = 0; to < out.length; to += stride)
    for (let e = 0; e < weights.length; e++) out[to + e]! *= weights[e]!
}
