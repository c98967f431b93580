import { bytesFor, createKernel, layOut, type Kernel } from './kernel.ts'

/** Unit vectors as clustering sees them, however they are kept. */
export interface UnitRows {
  readonly rows: number
  readonly width: number
  copyRow(index: number, out: Float32Array): void
  /** Adds a row to sums[at …]. */
  addRow(index: number, sums: Float64Array, at: number): void
  /** out[r − from] = row r · row `of`, for r in [from, to). */
  similaritiesOfRow(of: number, from: number, to: number, out: Float32Array): void
}

/** Rows of float32 in a kernel's memory, so that scoring copies one vector in and one number a row out. */
export interface RowMatrix extends UnitRows {
  /** Words from one row to the next: `width` rounded up to eight. */
  readonly stride: number
  /** [rows × stride], padding zero. Callers may fill it in place. */
  readonly data: Float32Array
  row(index: number): Float32Array
  /** out[r] = row r · x, for unit vectors their cosine. */
  similarities(x: Float32Array, out: Float32Array): void
}

export const strideOf = (width: number): number => Math.ceil(width / 8) * 8

/** @example const matrix = createRowMatrix(2, 2); matrix.row(0).set([1, 0]); matrix.similarities(x, out) */
export function createRowMatrix(rows: number, width: number, makeKernel: (bytes: number) => Kernel = createKernel): RowMatrix {
  const stride = strideOf(width)
  const kernel = makeKernel(bytesFor(4 * rows * stride, 4 * stride, 4 * rows))
  const { f32 } = layOut(kernel)
  const [data, query, result] = [f32(rows * stride), f32(stride), f32(rows)]
  return {
    rows,
    width,
    stride,
    data: data.view,
    row: index => data.view.subarray(index * stride, index * stride + width),
    copyRow: (index, out) => out.set(data.view.subarray(index * stride, index * stride + width)),
    addRow(index, sums, at) {
      for (let from = index * stride, end = from + width; from < end; from++, at++) sums[at]! += data.view[from]!
    },
    similarities(x, out) {
      query.view.set(x)
      kernel.dots(data.at, rows, 4 * stride, query.at, result.at)
      out.set(result.view)
    },
    similaritiesOfRow(of, from, to, out) {
      kernel.dots(data.at + 4 * stride * from, to - from, 4 * stride, data.at + 4 * stride * of, result.at)
      out.set(result.view.subarray(0, to - from))
    },
  }
}

/** A matrix of rows that lie one after the other without padding. */
export function rowMatrixOf(values: Float32Array, width: number): RowMatrix {
  const matrix = createRowMatrix(values.length / width, width)
  for (let r = 0; r < matrix.rows; r++) matrix.row(r).set(values.subarray(r * width, (r + 1) * width))
  return matrix
}

/** Rows that stay in the second-level cache while the others pass by them. */
export const CACHED_ROWS = 64

/** All products of two rows: [rows × rows], symmetric. */
export function gramOf(matrix: UnitRows): Float32Array {
  const { rows } = matrix
  const gram = new Float32Array(rows * rows)
  for (let from = 0; from < rows; from += CACHED_ROWS) {
    const to = Math.min(rows, from + CACHED_ROWS)
    for (let r = from; r < rows; r++) matrix.similaritiesOfRow(r, from, to, gram.subarray(r * rows + from, r * rows + to))
  }
  for (let r = 0; r < rows; r++) for (let c = r + 1; c < rows; c++) gram[r * rows + c] = gram[c * rows + r]!
  return gram
}
