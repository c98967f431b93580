import { bytesFor, createKernel, layOut, SORT_COUNTER_BYTES, type Kernel } from './kernel.ts'

/** Ranks less their mean, of the side of a correlation that stays fixed. */
export interface CentredRanks {
  /** Pointer to float64 values in the kernel's memory. */
  readonly at: number
  readonly squares: number
}

/** Ranks with ties averaged, minus their mean (n + 1)/2, from what a kernel sorted. ranks: one for each entry, by position. */
export function centredRanksOf(kernel: Kernel, sorted: number, ranks: Float64Array): number {
  const entries = new Uint32Array(kernel.buffer, sorted, 2 * ranks.length)
  const mean = (ranks.length + 1) / 2
  let squares = 0
  for (let from = 0, to = 0; from < ranks.length; from = to) {
    while (to < ranks.length && entries[2 * to + 1] === entries[2 * from + 1]) to++
    const rank = (from + 1 + to) / 2 - mean
    for (let at = from; at < to; at++) ranks[entries[2 * at]!] = rank
    squares += (to - from) * rank * rank
  }
  return squares
}

/** Spearman's ρ of two lists of finite numbers: 0 when either is constant. @example spearman(new Float32Array([1, 2, 3]), new Float32Array([1, 3, 2])) // 0.5 */
export function spearman(x: Float32Array, y: Float32Array): number {
  const n = x.length
  if (y.length !== n) throw new RangeError(`a correlation needs lists of one length, got ${n} and ${y.length}`)
  const kernel = createKernel(bytesFor(4 * n, 8 * n, 8 * n, 8 * n, SORT_COUNTER_BYTES))
  const { f32, f64, u32 } = layOut(kernel)
  const [values, ranks, a, b, counters] = [f32(n), f64(n), u32(2 * n), u32(2 * n), u32(SORT_COUNTER_BYTES / 4)]
  const sort = () => kernel.sort(values.at, n, a.at, b.at, counters.at)
  values.view.set(y)
  const squares = centredRanksOf(kernel, sort(), ranks.view)
  values.view.set(x)
  return kernel.correlation(sort(), n, ranks.at, squares)
}
