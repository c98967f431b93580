import { simdModuleOf } from '../../math/simd-module.ts'
import { KERNEL_BASE64 } from './kernel-bytes.ts'
import { plainTinyKernel } from './kernel-plain.ts'

/**
 * The numeric inner loops of the model, on one block of memory that the caller lays out. Pointers are byte offsets into it, at multiples
 * of 16; numbers are float32, indices uint32, and rows follow each other without a gap unless a stride is given. What a row becomes never
 * depends on the rows beside it: sums have one order, whatever is computed together.
 */
export interface TinyKernel {
  readonly buffer: ArrayBuffer
  /** y[row][n] = x[row][k] · w, weights in panels of PANEL outputs: [n / PANEL][k][PANEL]. k is even. Sums run over k from 0 up. */
  matmul(x: number, rows: number, k: number, w: number, n: number, y: number): void
  /** out[row] = weight × (x[row] / √(mean(x[row]²) + eps)). */
  norm(x: number, rows: number, width: number, weight: number, eps: number, out: number): void
  /**
   * The same in place for each of the `heads` heads at the start of each row, which are then turned by the row's position. `turns` has
   * for every position width / 2 cosines and as many sines; x[i] and x[i + width / 2] are turned together.
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
  /** Each row in place: e^((x − max) · scale), divided by their sum. `count` is a multiple of 4. */
  softmax(x: number, rows: number, count: number, scale: number): void
  /**
   * Attention of two queries that share keys and values, over positions 0 to length − 1: position p has its key at keys + rows[p] and its
   * value at values + rows[p]. `rows` can be read up to the next multiple of 4, `scores` has room for twice that. width: a multiple of 16.
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
  /** out[i] = from[which[i]], rows of so many bytes. */
  gather(from: number, which: number, count: number, bytes: number, out: number): void
  /** out[row] = silu(first half of x[row]) × second half; `width` of each. */
  gatedUnit(x: number, rows: number, width: number, out: number): void
  /** out[which[i]] += factors[i] × x[i]. */
  addScaled(x: number, which: number, factors: number, rows: number, width: number, out: number): void
  /** x += y. */
  add(x: number, y: number, count: number): void
}

/** Outputs of a panel of weights. */
export const PANEL = 32
const PAGE_BYTES = 65_536
export const MOST_KERNEL_BYTES = 2 ** 32 - PAGE_BYTES

const simdModule = simdModuleOf(KERNEL_BASE64)

export type TinyKernelKind = 'simd' | 'plain'

export function tinyKernelKind(): TinyKernelKind {
  return simdModule() === null ? 'plain' : 'simd'
}

/** A kernel with at least `bytes` of memory, all zero: SIMD where the engine has it, else the plain loops, which give the same bits. */
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
