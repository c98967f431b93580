/**
 * Decode workers in cells: first a cell is chosen, then a worker of it. A cell is what one group of gateways knows; what chooses the cell
 * need not know single workers. Both choices are policies: to the first one each cell is a worker, whose load is the mean of its workers'.
 */
import { centroidsOf } from '../math/centroids.ts'
import { kMeans } from '../math/k-means.ts'
import { packedRows, packUnit } from '../math/packed-rows.ts'
import { createRandom } from '../math/random.ts'
import type { Candidate, DecodePolicy } from './decode-policy.ts'

export interface CellsOptions {
  /** Cell of each worker, from 0. A worker beyond them is in the cell of the last. */
  readonly cellOf: ArrayLike<number>
  /** Chooses the cell. */
  readonly outer: DecodePolicy
  /** Chooses among the workers of the cell; it is told of all requests. */
  readonly inner: DecodePolicy
}

/** The decision is the inner one; similarities are left out, for they are of the cell's workers alone. */
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
      }))
      const { worker: cell } = outer.pick(request, asWorkers, ctx)
      const { worker, reason } = inner.pick(request, cells.get(cell)!, ctx)
      return { worker, reason }
    },
    dispatched(request, worker) {
      outer.dispatched?.(request, of(worker))
      inner.dispatched?.(request, worker)
    },
    released(request, worker) {
      outer.released?.(request, of(worker))
      inner.released?.(request, worker)
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

/** Workers whose centroids are alike in one cell, all cells of one size as far as the numbers allow. The same centroids and seed give the same. */
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
