import { bytesFor, createKernel, layOut, SORT_COUNTER_BYTES } from './kernel.ts'

/** Spearman's ρ of two lists of finite numbers: 0 when either is constant. @example spearman(new Float32Array([1, 2, 3]), new Float32Array([1, 3, 2])) // 0.5 */
export function spearman(x: Float32Array, y: Float32Array): number {
  const n = x.length
  if (y.length !== n) throw new RangeError(`a correlation needs lists of one length, got ${n} and ${y.length}`)
  const kernel = createKernel(bytesFor(4 * n, 8 * n, 8 * n, 8 * n, SORT_COUNTER_BYTES))
  const { f32, f64, u32 } = layOut(kernel)
  const [values, ranks, a, b, counters] = [f32(n), f64(n), u32(2 * n), u32(2 * n), u32(SORT_COUNTER_BYTES / 4)]
  const sort = () => kernel.sort(values.at, n, a.at, b.at, counters.at)
  values.view.set(y)
  const squares = kernel.centredRanks(sort(), n, ranks.at)
  values.view.set(x)
  return kernel.correlation(sort(), n, ranks.at, squares)
}
