import { simdModuleOf } from '../../math/simd-module.ts'
import { KERNEL_BASE64 } from './kernel-bytes.ts'
import { plainTinyKernel } from './kernel-plain.ts'

/**
 * The numeric inner loops of the model, on one block of memory that the caller lays out. Pointers are byte
 * offsets into it, at multiples of 16; numbers are float32, indices uint32, and rows are contiguous unless a
 * stride is given. The result of a row never depends on the other rows: sums always have the same order.
 */
export interface TinyKernel {
  readonly buffer: ArrayBuffer
  /**
   * y[row][n] = x[row][k] · w, weights in panels of PANEL outputs: [n / PANEL][k][PANEL]. k is even. Sums run
   * over k in ascending order.
   */
  matmul(x: number, rows: number, k: number, w: number, n: number, y: number): void
  /** out[row] = weight × (x[row] / √(mean(x[row]²) + eps)). */
  norm(x: number, rows: number, width: number, weight: number, eps: number, out: number): void
  /**
   * The same in place for each of the `heads` heads at the start of each row, followed by the rotation of the
   * row’s position. `turns` has width / 2 cosines and width / 2 sines per position; x[i] and x[i + width / 2]
   * are rotated together.
   */
  normTurn(
    x: number,
    rows: number,
    strideBytes: number,
    heads: number,
    width: number,
    weight: number,
    eps: number,
    positions: number,
    turns: number,
  ): void
  /** Softmax of each row in place: e^((x − max) · scale), divided by the sum. `count` is a multiple of 4. */
  softmax(x: number, rows: number, count: number, scale: number): void
  /**
   * Attention of two queries that share keys and values, over positions 0 to length − 1: position p has its
   * key at keys + rows[p] and its value at values + rows[p]. `rows` is readable up to the next multiple of 4,
   * `scores` has room for twice that. width: a multiple of 16.
   */
  attend(
    q: number,
    width: number,
    rows: number,
    length: number,
    keys: number,
    values: number,
    scale: number,
    scores: number,
    out: number,
  ): void
  /** out[i] = from[which[i]], rows of `bytes` bytes. */
  gather(from: number, which: number, count: number, bytes: number, out: number): void
  /** out[row] = silu(first half of x[row]) × second half; each half has `width` numbers. */
  gatedUnit(x: number, rows: number, width: number, out: number): void
  /** out[which[i]] += factors[i] × x[i]. */
  addScaled(x: number, which: number, factors: number, rows: number, width: number, out: number): void
  /** x += y. */
  add(x: number, y: number, count: number): void
}

/** Outputs per panel of weights. */
export const PANEL = 32
const PAGE_BYTES = 65_536
export const MAX_KERNEL_BYTES = 2 ** 32 - PAGE_BYTES

const simdModule = simdModuleOf(KERNEL_BASE64)

export type TinyKernelKind = 'simd' | 'plain'

export function tinyKernelKind(): TinyKernelKind {
  return simdModule() === null ? 'plain' : 'simd'
}

/**
 * Creates a kernel with at least `bytes` of zeroed memory: SIMD if available, else the plain loops, which
 * give the same bits.
 */
export function createTinyKernel(bytes: number, kind = tinyKernelKind()): TinyKernel {
  const module = simdModule()
  if (kind === 'plain' || module === null) return plainTinyKernel(new ArrayBuffer(Math.ceil(bytes / 64) * 64))
  const { memory, ...loops } = new WebAssembly.Instance(module).exports as unknown as Omit<
    TinyKernel,
    'buffer'
  > & {
    memory: WebAssembly.Memory
  }
  memory.grow(Math.ceil(bytes / PAGE_BYTES))
  return { buffer: memory.buffer, ...loops }
}
