import { bytesFor, createKernel, layOut } from '../math/kernel.ts'
import { packedRows, packUnit, UNIT } from '../math/packed-rows.ts'
import { rowMatrixOf } from '../math/row-matrix.ts'
import { MAX_CHANCE } from './union-state.ts'

/** Finds calibration requests with known decode patterns and close signatures. */
export interface Neighbours {
  /** Mean decode pattern of the closest, weighted by closeness. False if the signature has the wrong size. */
  meanPattern(signature: Float32Array, out: Float32Array): boolean
}

export interface NeighboursOptions {
  /** Unit centroids [clusters × dimensions]. */
  readonly centroids: Float32Array
  /** Signatures in fixed point [requests × dimensions]. */
  readonly signatures: Int16Array
  readonly clusterOf: ArrayLike<number>
  /** Decode patterns in 255ths [requests × cells]. */
  readonly patterns: Uint8Array
  readonly dimensions: number
  /** How many are averaged. */
  readonly count?: number
  /** Number of clusters to search, nearest first; Infinity searches all. */
  readonly searchedClusters?: number
}

/**
 * A neighbour this much less similar than the closest has 1/e of its weight. Tuned on held-out calibration
 * requests of both lab16 traces.
 */
const SOFTNESS = 0.05

export function createNeighbours(options: NeighboursOptions): Neighbours {
  const { centroids, dimensions, patterns, clusterOf, count = 16, searchedClusters = 3 } = options
  const clusters = centroids.length / dimensions
  const requests = clusterOf.length
  const cells = patterns.length / requests
  const { order, starts } = byCluster(clusterOf, clusters)
  const signatures = new Int16Array(options.signatures.length)
  order.forEach((request, at) =>
    signatures.set(
      options.signatures.subarray(request * dimensions, (request + 1) * dimensions),
      at * dimensions,
    ),
  )
  const rows = packedRows(signatures, dimensions)
  const matrix = rowMatrixOf(centroids, dimensions)
  const nearness = new Float32Array(clusters)
  const packed = new Int16Array(dimensions)
  const products = new Int32Array(requests)
  const mix = createMixer(patterns, cells, order, count)

  return {
    meanPattern(signature, out) {
      if (signature.length !== dimensions) return false
      matrix.similarities(signature, nearness)
      packUnit(signature, packed)
      const searched = Array.from(nearness.keys()).sort((a, b) => nearness[b]! - nearness[a]!)
      const best = createTop(count)
      let looked = 0
      for (let at = 0; at < clusters && (at < searchedClusters || looked < count); at++) {
        const [from, to] = [starts[searched[at]!]!, starts[searched[at]! + 1]!]
        rows.productsWith(packed, from, to, products)
        for (let r = from; r < to; r++) best.offer(r, products[r - from]!)
        looked += to - from
      }
      if (best.entries().length === 0) return false
      mix(best.entries(), out)
      return true
    },
  }
}

/**
 * Patterns in a kernel's memory, sorted by cluster, and their weighted mean. Weights are bytes, so that a
 * mean is a sum of small integers.
 */
function createMixer(patterns: Uint8Array, cells: number, order: readonly number[], max: number) {
  const stride = Math.ceil(cells / 64) * 64
  const kernel = createKernel(bytesFor(order.length * stride, 4 * max, 4 * max, 2 * stride))
  const { u32, i16 } = layOut(kernel)
  const [rows, which, weights, mixed] = [u32((order.length * stride) / 4), u32(max), u32(max), i16(stride)]
  const bytes = new Uint8Array(kernel.buffer, rows.at, order.length * stride)
  const sums = new Uint16Array(kernel.buffer, mixed.at, cells)
  order.forEach((request, at) =>
    bytes.set(patterns.subarray(request * cells, (request + 1) * cells), at * stride),
  )

  /** Entries are in descending order of similarity. */
  return (entries: readonly Entry[], out: Float32Array): void => {
    const raw = entries.map(({ product }) =>
      Math.exp((product - entries[0]!.product) / (UNIT * UNIT * SOFTNESS)),
    )
    const total = raw.reduce((a, b) => a + b, 0)
    let used = 0
    let sum = 0
    for (const [at, weight] of raw.entries()) {
      const share = Math.min(255, Math.round((255 * weight) / total))
      if (share === 0) break
      which.view[used] = entries[at]!.row
      weights.view[used++] = share
      sum += share
    }
    // Rounded weights may sum to slightly more than 257, the most that the sums have room for.
    for (let at = used - 1; sum > 257; at = (at + used - 1) % used) {
      if (weights.view[at]! <= 1) continue
      weights.view[at]!--
      sum--
    }
    kernel.mixBytes(rows.at, stride, which.at, weights.at, used, mixed.at)
    const scale = 1 / (255 * sum)
    for (let c = 0; c < cells; c++) out[c] = Math.min(MAX_CHANCE, sums[c]! * scale)
  }
}

interface Entry {
  /** Position in the order by clusters. */
  readonly row: number
  readonly product: number
}

/** Requests sorted by cluster, and where each cluster begins. */
function byCluster(clusterOf: ArrayLike<number>, clusters: number): { order: number[]; starts: Int32Array } {
  const lists: number[][] = Array.from({ length: clusters }, () => [])
  for (let r = 0; r < clusterOf.length; r++) lists[clusterOf[r]!]!.push(r)
  const starts = new Int32Array(clusters + 1)
  lists.forEach(({ length }, k) => (starts[k + 1] = starts[k]! + length))
  return { order: lists.flat(), starts }
}

/** The highest few of many, descending, in a short sorted list: most offers end at the first comparison. */
function createTop(max: number) {
  const kept: Entry[] = []
  return {
    entries: (): readonly Entry[] => kept,
    offer(row: number, product: number): void {
      if (kept.length === max && product <= kept[max - 1]!.product) return
      let at = kept.length
      while (at > 0 && kept[at - 1]!.product < product) at--
      kept.splice(at, 0, { row, product })
      if (kept.length > max) kept.pop()
    },
  }
}
