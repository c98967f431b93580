import { bytesFor, createKernel, type Kernel, layOut } from './kernel.ts'

/**
 * Steps per 1 of the fixed-point unit vectors: half the memory of float32, and sums and products of rows are
 * exact integers.
 */
export const UNIT = 32_767

/**
 * Rows in fixed point, in a kernel's memory. Rounding leaves their lengths within about 10⁻⁴ of 1; they are
 * not renormalised.
 */
export interface PackedRows {
  readonly rows: number
  readonly width: number
  /** A row as floats. */
  copyRow(index: number, out: Float32Array): void
  /** Close to 1. */
  length(index: number): number
  /** Adds or subtracts a row's integers in sums[at …]. */
  addRow(index: number, sign: 1 | -1, sums: Float64Array, at: number): void
  /** out[r − from] = row r · row `of` in steps of 1/UNIT², for r in [from, to): exact. */
  products(of: number, from: number, to: number, out: Int32Array): void
  /** The same for a packed vector that is not a row. */
  productsWith(vector: Int16Array, from: number, to: number, out: Int32Array): void
  /**
   * For each vector v and row r: out[r × stride + columns[v]] = −row r · vector. Vectors: unit length, one
   * after the other.
   */
  negatedProducts(vectors: Float64Array, columns: readonly number[], out: Float64Array, stride: number): void
}

/** Rows that stay in the second-level cache while the vectors are processed. */
const CACHED_ROWS = 64
/**
 * A vector is split into two planes of int16: steps of 1/UNIT, and the remainder in 256ths. Together they
 * have float32's precision.
 */
const FINE = 256

/** Rounds values from −1 to 1 to fixed point. */
export function packUnit(values: Float32Array, packed = new Int16Array(values.length)): Int16Array {
  // Storing truncates, so adding half a step away from zero first rounds. Math.round takes three times as
  // long.
  for (let at = 0; at < values.length; at++) packed[at] = values[at]! * UNIT + (values[at]! < 0 ? -0.5 : 0.5)
  return packed
}

/** Packed values, row after row. */
export function packedRows(
  packed: Int16Array,
  width: number,
  makeKernel: (bytes: number) => Kernel = createKernel,
): PackedRows {
  const rows = packed.length / width
  const stride = Math.ceil(width / 32) * 32
  const kernel = makeKernel(
    bytesFor(2 * rows * stride, 2 * stride, 2 * stride, 4 * Math.max(rows, CACHED_ROWS), 4 * CACHED_ROWS),
  )
  const { i16, i32 } = layOut(kernel)
  const [data, coarse, fine, result, fineResult] = [
    i16(rows * stride),
    i16(stride),
    i16(stride),
    i32(Math.max(rows, CACHED_ROWS)),
    i32(CACHED_ROWS),
  ]
  for (let r = 0; r < rows; r++) data.view.set(packed.subarray(r * width, (r + 1) * width), r * stride)
  const rowAt = (index: number) => data.at + 2 * stride * index

  return {
    rows,
    width,
    copyRow(index, out) {
      for (let d = 0, at = index * stride; d < width; d++, at++) out[d] = data.view[at]! / UNIT
    },
    length(index) {
      kernel.dotsI16(rowAt(index), 1, 2 * stride, rowAt(index), result.at)
      return Math.sqrt(result.view[0]!) / UNIT
    },
    addRow(index, sign, sums, at) {
      for (let from = index * stride, end = from + width; from < end; from++, at++)
        sums[at]! += sign * data.view[from]!
    },
    products(of, from, to, out) {
      kernel.dotsI16(rowAt(from), to - from, 2 * stride, rowAt(of), result.at)
      out.set(result.view.subarray(0, to - from))
    },
    productsWith(vector, from, to, out) {
      coarse.view.set(vector)
      kernel.dotsI16(rowAt(from), to - from, 2 * stride, coarse.at, result.at)
      out.set(result.view.subarray(0, to - from))
    },
    negatedProducts(vectors, columns, out, outStride) {
      const planes = columns.map((_, v) => split(vectors.subarray(v * width, (v + 1) * width)))
      for (let from = 0; from < rows; from += CACHED_ROWS) {
        const count = Math.min(CACHED_ROWS, rows - from)
        columns.forEach((column, v) => {
          coarse.view.set(planes[v]!.coarse)
          fine.view.set(planes[v]!.fine)
          kernel.dotsI16(rowAt(from), count, 2 * stride, coarse.at, result.at)
          kernel.dotsI16(rowAt(from), count, 2 * stride, fine.at, fineResult.at)
          for (let r = 0, to = from * outStride + column; r < count; r++, to += outStride) {
            out[to] = (result.view[r]! + fineResult.view[r]! / FINE) / -(UNIT * UNIT)
          }
        })
      }
    },
  }
}

function split(vector: Float64Array): { coarse: Int16Array; fine: Int16Array } {
  const coarse = new Int16Array(vector.length)
  const fine = new Int16Array(vector.length)
  for (let d = 0; d < vector.length; d++) {
    const steps = vector[d]! * UNIT
    coarse[d] = steps + (steps < 0 ? -0.5 : 0.5)
    fine[d] = Math.round((steps - coarse[d]!) * FINE)
  }
  return { coarse, fine }
}

/** All products of two rows in steps of 1/UNIT²: [rows × rows], symmetric, exact. */
export function gramOf(points: PackedRows): Int32Array {
  const { rows } = points
  const gram = new Int32Array(rows * rows)
  for (let from = 0; from < rows; from += CACHED_ROWS) {
    const to = Math.min(rows, from + CACHED_ROWS)
    for (let r = from; r < rows; r++)
      points.products(r, from, to, gram.subarray(r * rows + from, r * rows + to))
  }
  for (let r = 0; r < rows; r++) for (let c = r + 1; c < rows; c++) gram[r * rows + c] = gram[c * rows + r]!
  return gram
}
