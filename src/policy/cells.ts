/**
 * Decode workers in cells: first a cell is chosen, then a worker in it. A cell is what one group of gateways
 * knows; choosing the cell needs no knowledge of single workers. Both choices are policies: to the outer one
 * each cell is a worker, whose load is the mean of its workers'.
 */
import { centroidsOf } from '../math/centroids.ts'
import { kMeans } from '../math/k-means.ts'
import { packedRows, packUnit } from '../math/packed-rows.ts'
import { createRandom } from '../math/random.ts'
import type { Candidate, DecodePolicy } from './decode-policy.ts'

export interface CellsOptions {
  /** Cell of each worker, from 0. Workers beyond the end are in the last worker's cell. */
  readonly cellOf: ArrayLike<number>
  /** Chooses the cell. */
  readonly outer: DecodePolicy
  /** Chooses among the workers of the cell; hears of all requests. */
  readonly inner: DecodePolicy
}

/** The decision is the inner one. Similarities are left out, since they cover only the cell's workers. */
export function inCells({ cellOf, outer, inner }: CellsOptions): DecodePolicy {
  const of = (worker: number) => cellOf[Math.min(worker, cellOf.length - 1)]!
  return {
    name: inner.name,
    pick(request, candidates, ctx) {
      const cells = new Map<number, Candidate[]>()
      for (const candidate of candidates) {
        const members = cells.get(of(candidate.worker))
        if (members === undefined) cells.set(of(candidate.worker), [candidate])
        else members.push(candidate)
      }
      const asWorkers = Array.from(cells, ([worker, members]) => ({
        worker,
        inflight: members.reduce((sum, { inflight }) => sum + inflight, 0) / members.length,
        tokens: members.reduce((sum, { tokens = NaN }) => sum + tokens, 0) / members.length,
      }))
      const { worker: cell } = outer.pick(request, asWorkers, ctx)
      const { worker, reason } = inner.pick(request, cells.get(cell)!, ctx)
      return { worker, reason }
    },
    dispatched(request, worker) {
      outer.dispatched?.(request, of(worker))
      inner.dispatched?.(request, worker)
    },
    released(request, worker, tokenUs) {
      outer.released?.(request, of(worker))
      inner.released?.(request, worker, tokenUs)
    },
    ownRequestsOnly: inner.ownRequestsOnly,
    expectedExperts: inner.expectedExperts,
  }
}

export interface CellPlan {
  readonly cellOf: Int32Array
  /** Unit vectors [cells × dimensions]. */
  readonly centroids: Float32Array
}

/**
 * Groups workers with similar centroids into cells of equal size, as far as the numbers allow. The same
 * centroids and seed give the same cells.
 */
export function cellsOfAlike(
  centroids: Float32Array,
  dimensions: number,
  cells: number,
  seed: number,
): CellPlan {
  const workers = centroids.length / dimensions
  const packed = new Int16Array(centroids.length)
  for (let worker = 0; worker < workers; worker++) {
    const at = worker * dimensions
    packed.set(packUnit(centroids.subarray(at, at + dimensions)), at)
  }
  const points = packedRows(packed, dimensions)
  const { clusterOf } = kMeans(points, {
    clusters: cells,
    balanced: true,
    random: createRandom(seed),
    restarts: 5,
  })
  return { cellOf: clusterOf, centroids: centroidsOf(points, clusterOf, cells) }
}
