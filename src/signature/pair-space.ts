import { bytesFor, createKernel, layOut, MAX_KERNEL_BYTES, SORT_COUNTER_BYTES } from '../math/kernel.ts'
import type { Pairs } from '../math/pairs.ts'
import { strideOf } from '../math/row-matrix.ts'

/**
 * Signature quality ρ (paper Eq. 1) over fixed pairs of requests, for any subset of layers, without reading
 * vectors again: products and norms are computed once per layer, and a subset's cosines are sums of them.
 * Only one layer's vectors are in memory at a time.
 */
export interface PairSpace {
  /** Loads the target that signatures must predict: the decode patterns. */
  setTarget(fill: FillLayer): void
  /** Loads the vectors whose quality is measured. */
  load(fill: FillLayer): void
  /** A copy of what `load` computed, for `restore`: cheaper than loading again. */
  save(): SavedLayers
  restore(saved: SavedLayers): void
  /** ρ of the loaded vectors over these layers. */
  rho(layers: readonly number[]): number
  /** ρ with one layer more than the last `rho` or `keep` had; for greedy selection. */
  rhoWith(layer: number): number
  /** Adds a layer permanently. */
  keep(layer: number): void
  clear(): void
}

/** Products of the pairs and squared norms, per layer. */
export interface SavedLayers {
  readonly dots: Float32Array
  readonly squares: Float64Array
}

/** Writes one layer's vectors: rows of `experts` values, `stride` words apart. */
export type FillLayer = (layer: number, rows: Float32Array, stride: number) => void

export interface PairSpaceShape {
  readonly requests: number
  readonly layers: number
  readonly experts: number
}

const sizes = ({ requests, layers, experts }: PairSpaceShape, pairs: number) => ({
  rows: 4 * requests * strideOf(experts),
  dots: 4 * layers * pairs,
  perPair: [4, 4, 4, 8, 8, 8, 8].map(bytes => bytes * pairs),
  perRequest: [4, 4, 8].map(bytes => bytes * requests),
})

/**
 * How many pairs fit into a kernel's memory with this many layers: a limit only for all pairs of about ten
 * thousand requests.
 */
export function maxPairs(shape: PairSpaceShape): number {
  const { rows, perRequest } = sizes(shape, 0)
  return Math.floor(
    (MAX_KERNEL_BYTES - rows - perRequest.reduce((a, b) => a + b) - 2 ** 20) / (4 * shape.layers + 44),
  )
}

export function createPairSpace(shape: PairSpaceShape, pairs: Pairs): PairSpace {
  const { requests, layers, experts } = shape
  const count = pairs.i.length
  const size = sizes(shape, count)
  const kernel = createKernel(
    bytesFor(size.rows, size.dots, ...size.perPair, ...size.perRequest, SORT_COUNTER_BYTES),
  )
  const { f32, f64, u32 } = layOut(kernel)
  const stride = strideOf(experts)
  const [rows, dots, i, j, values] = [
    f32(requests * stride),
    f32(layers * count),
    u32(count),
    u32(count),
    f32(count),
  ]
  const [sums, target, entriesA, entriesB] = [f64(count), f64(count), f64(count), f64(count)]
  const [self, selfDots, inverse, counters] = [
    u32(requests),
    f32(requests),
    f64(requests),
    u32(SORT_COUNTER_BYTES / 4),
  ]
  i.view.set(pairs.i)
  j.view.set(pairs.j)
  for (let r = 0; r < requests; r++) self.view[r] = r
  const squares = new Float64Array(layers * requests) // |x|² by layer and request
  const kept = new Float64Array(requests) // |x|² over the kept layers
  let targetSquares = 0

  function load(fill: FillLayer): void {
    for (let layer = 0; layer < layers; layer++) {
      fill(layer, rows.view, stride)
      kernel.pairDots(rows.at, 4 * stride, i.at, j.at, count, dots.at + 4 * layer * count)
      kernel.pairDots(rows.at, 4 * stride, self.at, self.at, requests, selfDots.at)
      squares.set(selfDots.view, layer * requests)
    }
    clear()
  }
  function clear(): void {
    sums.view.fill(0)
    kept.fill(0)
  }
  function keep(layer: number): void {
    const from = layer * count
    for (let p = 0; p < count; p++) sums.view[p]! += dots.view[from + p]!
    for (let r = 0; r < requests; r++) kept[r]! += squares[layer * requests + r]!
  }
  const sort = () => kernel.sort(values.at, count, entriesA.at, entriesB.at, counters.at)
  const rhoOfValues = () => kernel.correlation(sort(), count, target.at, targetSquares)

  function cosinesOfKept(): void {
    for (let r = 0; r < requests; r++) inverse.view[r] = kept[r]! > 0 ? 1 / Math.sqrt(kept[r]!) : 0
    for (let p = 0; p < count; p++)
      values.view[p] = sums.view[p]! * inverse.view[i.view[p]!]! * inverse.view[j.view[p]!]!
  }
  return {
    setTarget(fill) {
      load(fill)
      for (let layer = 0; layer < layers; layer++) keep(layer)
      cosinesOfKept()
      targetSquares = kernel.centredRanks(sort(), count, target.at)
      clear()
    },
    load,
    save: () => ({ dots: dots.view.slice(), squares: squares.slice() }),
    restore(saved) {
      dots.view.set(saved.dots)
      squares.set(saved.squares)
      clear()
    },
    rho(subset) {
      clear()
      for (const layer of subset) keep(layer)
      cosinesOfKept()
      return rhoOfValues()
    },
    rhoWith(layer) {
      const from = layer * requests
      for (let r = 0; r < requests; r++) {
        const norm = kept[r]! + squares[from + r]!
        inverse.view[r] = norm > 0 ? 1 / Math.sqrt(norm) : 0
      }
      kernel.cosines(sums.at, dots.at + 4 * layer * count, inverse.at, i.at, j.at, count, values.at)
      return rhoOfValues()
    },
    keep,
    clear,
  }
}
