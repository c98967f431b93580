/**
 * Gives the new clusters to workers so that as few requests as possible change their home: an optimal
 * assignment on the requests in flight, and among equal ones on the sample.
 */
import { assignBalanced } from '../math/balanced-assignment.ts'

export interface Homes {
  /** New cluster of each request, and the worker that it is on, or that the old artifact prefers. */
  readonly cluster: ArrayLike<number>
  readonly worker: ArrayLike<number>
}

/** A worker with a fixed cluster keeps the region nearest to its own, whatever the others lose. */
const FIXED_WEIGHT = 1_000

/** The worker of each new cluster; there are as many clusters as workers. */
export function matchWorkers(
  workers: number,
  inflight: Homes,
  sampled: Homes,
  isFixed: (worker: number) => boolean,
): Int32Array {
  const kept = new Float64Array(workers * workers)
  const add = ({ cluster, worker }: Homes, weight: number) => {
    for (let at = 0; at < cluster.length; at++)
      if (worker[at]! >= 0 && worker[at]! < workers) kept[cluster[at]! * workers + worker[at]!]! += weight
  }
  add(inflight, 1)
  add(sampled, 1 / (sampled.cluster.length + 1)) // together less than one request in flight
  const costs = kept.map((value, at) => (isFixed(at % workers) ? -FIXED_WEIGHT * value : -value))
  return assignBalanced({ costs, points: workers, sinks: workers, capacity: 1 })
}

/** How many of these requests would change their home. */
export function movedHomes({ cluster, worker }: Homes, workerOf: ArrayLike<number>): number {
  let moved = 0
  for (let at = 0; at < cluster.length; at++) if (workerOf[cluster[at]!] !== worker[at]) moved++
  return moved
}
