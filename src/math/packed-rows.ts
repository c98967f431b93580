import { bytesFor, createKernel, layOut, type Kernel } from './kernel.ts'
import type { UnitRows } from './row-matrix.ts'

/** Unit vectors are kept in fixed point, this many steps to 1: half the memory of float32, and products of rows are exact integers. */
export const UNIT = 32_767

/** Rounds values from −1 to 1 to fixed point. */
export function packUnit(values: Float32Array): Int16Array {
  const packed = new Int16Array(values.length)
  // Storing cuts the fraction off; half a step away from zero before that rounds. Math.round takes three times as long.
  for (let at = 0; at < values.length; at++) packed[at] = values[at]! * UNIT + (values[at]! < 0 ? -0.5 : 0.5)
  return packed
}

/** Rows in fixed point, one after the other, as unit vectors: rounding changed their lengths a little, so they are divided by them. */
export function packedRows(packed: Int16Array, width: number, makeKernel: (bytes: number) => Kernel = createKernel): UnitRows {
  const rows = packed.length / width
  const stride = Math.ceil(width / 16) * 16
  const kernel = makeKernel(bytesFor(2 * rows * stride, 4 * rows))
  const { i16, i32 } = layOut(kernel)
  const [data, result] = [i16(rows * stride), i32(rows)]
  const inverse = new Float64Array(rows)
  for (let r = 0; r < rows; r++) {
    data.view.set(packed.subarray(r * width, (r + 1) * width), r * stride)
    const at = data.at + 2 * stride * r
    kernel.dotsI16(at, 1, 2 * stride, at, result.at)
    inverse[r] = result.view[0]! > 0 ? 1 / Math.sqrt(result.view[0]!) : 0
  }
  return {
    rows,
    width,
    copyRow(index, out) {
      const scale = inverse[index]!
      for (let d = 0, at = index * stride; d < width; d++, at++) out[d] = data.view[at]! * scale
    },
    addRow(index, sums, at) {
      const scale = inverse[index]!
      for (let from = index * stride, end = from + width; from < end; from++, at++) sums[at]! += data.view[from]! * scale
    },
    similaritiesOfRow(of, from, to, out) {
      kernel.dotsI16(data.at + 2 * stride * from, to - from, 2 * stride, data.at + 2 * stride * of, result.at)
      const scale = inverse[of]!
      for (let r = from; r < to; r++) out[r - from] = result.view[r - from]! * scale * inverse[r]!
    },
  }
}
