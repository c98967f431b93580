import { bytesFor, createKernel, type Kernel, layOut } from './kernel.ts'

/** Rows of float32 in a kernel's memory, so that scoring copies one vector in and one number per row out. */
export interface RowMatrix {
  readonly rows: number
  readonly width: number
  /** out[r] = row r · x, which for unit vectors is their cosine. */
  similarities(x: Float32Array, out: Float32Array): void
}

export const strideOf = (width: number): number => Math.ceil(width / 16) * 16

/** Values row after row. @example rowMatrixOf(centroids, dimensions).similarities(signature, out) */
export function rowMatrixOf(
  values: Float32Array,
  width: number,
  makeKernel: (bytes: number) => Kernel = createKernel,
): RowMatrix {
  const rows = values.length / width
  const stride = strideOf(width)
  const kernel = makeKernel(bytesFor(4 * rows * stride, 4 * stride, 4 * rows))
  const { f32 } = layOut(kernel)
  const [data, query, result] = [f32(rows * stride), f32(stride), f32(rows)]
  for (let r = 0; r < rows; r++) data.view.set(values.subarray(r * width, (r + 1) * width), r * stride)
  return {
    rows,
    width,
    similarities(x, out) {
      query.view.set(x)
      kernel.dots(data.at, rows, 4 * stride, query.at, result.at)
      out.set(result.view)
    },
  }
}
