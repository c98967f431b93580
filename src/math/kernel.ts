import { KERNEL_BASE64 } from './kernel-bytes.ts'
import { plainKernel } from './kernel-plain.ts'
import { simdModuleOf } from './simd-module.ts'

/**
 * The numeric inner loops, on one block of memory that the caller lays out. Pointers are byte offsets into
 * it. Rows have a stride that is a multiple of 64 bytes, and the padding after a row's end is zero.
 */
export interface Kernel {
  readonly buffer: ArrayBuffer
  /** out[r] = rows[r] · x. */
  dots(rows: number, count: number, strideBytes: number, x: number, out: number): void
  /** The same for rows of int16, out in int32: exact while no row is longer than 2^15. */
  dotsI16(rows: number, count: number, strideBytes: number, x: number, out: number): void
  /** out[p] = rows[i[p]] · rows[j[p]]. */
  pairDots(rows: number, strideBytes: number, i: number, j: number, count: number, out: number): void
  /**
   * out[p] = (sums[p] + dots[p]) × inverse[i[p]] × inverse[j[p]]. Sums and inverse norms are float64, the
   * rest float32.
   */
  cosines(sums: number, dots: number, inverse: number, i: number, j: number, count: number, out: number): void
  /**
   * Sorts finite float32 values and overwrites them: 8-byte entries (position, then key) in ascending order,
   * at `a` or `b`, whichever is returned.
   */
  sort(values: number, count: number, a: number, b: number, counters: number): number
  /**
   * Ranks of the values that `sort` sorted, ties averaged, minus their mean (float64, by position). Returns
   * the sum of their squares.
   */
  centredRanks(sorted: number, count: number, out: number): number
  /**
   * Spearman's ρ of the values that `sort` sorted with the result of `centredRanks` for the other side, given
   * its sum of squares; 0 if either side is constant.
   */
  correlation(sorted: number, count: number, centredRanks: number, squares: number): number
  /** out = counts (uint16) × weights (float32). Returns Σ out². `count` is a multiple of 8. */
  weigh(counts: number, weights: number, out: number, count: number): number
  /** x = x × factor. `count` is a multiple of 4. */
  scale(x: number, count: number, factor: number): void
  /**
   * sums (int32) += sign × logs (uint16), idle (float32) = e^(−sums × step). Returns Σ (1 − idle). `count` is
   * a multiple of 4. The relative error of idle is below 3·10⁻⁶, and it is exactly 1 where the sum is 0.
   */
  addLogs(sums: number, logs: number, sign: 1 | -1, idle: number, count: number, step: number): number
  /**
   * out (uint16) = Σ weights[n] × rows[which[n]], rows being bytes; which and weights are uint32, weights sum
   * to at most 257. `strideBytes` is a multiple of 16.
   */
  mixBytes(
    rows: number,
    strideBytes: number,
    which: number,
    weights: number,
    count: number,
    out: number,
  ): void
}

/** Bytes that `sort` needs at `counters`: 4,096 counters for each of three passes. */
export const SORT_COUNTER_BYTES = 3 * 4 * 4096
const PAGE_BYTES = 65_536
export const MAX_KERNEL_BYTES = 2 ** 32 - PAGE_BYTES

/** Thrown if more memory is requested than WebAssembly can address. */
export class KernelTooLarge extends RangeError {}

const simdModule = simdModuleOf(KERNEL_BASE64)

/** Which inner loops this engine uses. */
export function kernelKind(): 'simd' | 'plain' {
  return simdModule() === null ? 'plain' : 'simd'
}

/**
 * A kernel with at least `bytes` of memory: SIMD if the engine supports it, otherwise the plain loops, which
 * give the same bits.
 */
export function createKernel(bytes: number, kind = kernelKind()): Kernel {
  if (bytes > MAX_KERNEL_BYTES)
    throw new KernelTooLarge(`a kernel has at most ${MAX_KERNEL_BYTES} bytes of memory, ${bytes} requested`)
  const module = simdModule()
  if (kind === 'plain' || module === null) return plainKernel(new ArrayBuffer(Math.ceil(bytes / 64) * 64))
  const { memory, ...loops } = new WebAssembly.Instance(module).exports as unknown as Omit<
    Kernel,
    'buffer'
  > & {
    memory: WebAssembly.Memory
  }
  memory.grow(Math.ceil(bytes / PAGE_BYTES))
  return { buffer: memory.buffer, ...loops }
}

/**
 * Allocates aligned pieces of a kernel's memory one after the other. `bytesFor` adds up their sizes before
 * the kernel is created.
 */
export function layOut(kernel: Kernel): {
  f32(length: number): Piece<Float32Array>
  f64(length: number): Piece<Float64Array>
  u32(length: number): Piece<Uint32Array>
  i32(length: number): Piece<Int32Array>
  i16(length: number): Piece<Int16Array>
} {
  let next = 0
  const take = (bytes: number) => {
    const at = next
    next += Math.ceil(bytes / 64) * 64
    return at
  }
  return {
    f32: length =>
      ((at: number) => ({ at, view: new Float32Array(kernel.buffer, at, length) }))(take(4 * length)),
    f64: length =>
      ((at: number) => ({ at, view: new Float64Array(kernel.buffer, at, length) }))(take(8 * length)),
    u32: length =>
      ((at: number) => ({ at, view: new Uint32Array(kernel.buffer, at, length) }))(take(4 * length)),
    i32: length =>
      ((at: number) => ({ at, view: new Int32Array(kernel.buffer, at, length) }))(take(4 * length)),
    i16: length =>
      ((at: number) => ({ at, view: new Int16Array(kernel.buffer, at, length) }))(take(2 * length)),
  }
}

/** A piece of kernel memory: its offset, and a typed array over it. */
export interface Piece<View> {
  readonly at: number
  readonly view: View
}

/** Memory for pieces of these sizes in bytes, each rounded up as `layOut` does. */
export function bytesFor(...sizes: number[]): number {
  return sizes.reduce((sum, bytes) => sum + Math.ceil(bytes / 64) * 64, 0)
}
