import { bytesFor, createKernel, layOut } from '../math/kernel.ts'
import { strideOf } from '../math/row-matrix.ts'
import { dimensionsOf, type SignatureModel, writeSignature } from './signature.ts'
import { TRANSFORM } from './transform.ts'

/**
 * Computes signatures on the hot path: the same as `writeSignature` to float32's precision, with the loops in
 * the kernel.
 */
export interface Signer {
  readonly dimensions: number
  /**
   * The signature of captured values [modelLayers × experts] as a new array; undefined if they have another
   * size or carry no information.
   */
  sign(values: Uint16Array | Float32Array): Float32Array | undefined
}

export function createSigner(model: SignatureModel): Signer {
  const { experts, layers, modelLayers } = model
  const dimensions = dimensionsOf(model)
  const padded = strideOf(dimensions)
  const kernel = createKernel(bytesFor(2 * padded, 4 * padded, 4 * padded))
  const { i16, f32 } = layOut(kernel)
  const [staged, weights, out] = [i16(padded), f32(padded), f32(padded)]
  const counts = new Uint16Array(kernel.buffer, staged.at, padded)
  weights.view.set(model.weights)
  const runs = runsOf(layers, experts)

  function signCounts(values: Uint16Array): Float32Array | undefined {
    for (const { from, to, at } of runs) counts.set(values.subarray(from, to), at)
    const squares = kernel.weigh(staged.at, weights.at, out.at, padded)
    if (!(squares > 0)) return undefined
    kernel.scale(out.at, padded, 1 / Math.sqrt(squares))
    return out.view.slice(0, dimensions)
  }
  return {
    dimensions,
    sign(values) {
      if (values.length !== modelLayers * experts) return undefined
      if (values instanceof Uint16Array && TRANSFORM[model.transform].shape === 'as-is')
        return signCounts(values)
      const signature = new Float32Array(dimensions)
      return writeSignature(model, values, signature) ? signature : undefined
    },
  }
}

/** Adjacent kept layers are copied together: from … to of the values, to `at` of the signature. */
function runsOf(layers: Uint16Array, experts: number): { from: number; to: number; at: number }[] {
  const runs: { from: number; to: number; at: number }[] = []
  layers.forEach((layer, kept) => {
    const last = runs.at(-1)
    if (last !== undefined && last.to === layer * experts) last.to += experts
    else runs.push({ from: layer * experts, to: (layer + 1) * experts, at: kept * experts })
  })
  return runs
}
