/**
 * Which cluster of the artifact each decode worker has. Indexes of workers are theirs for as long as they are registered, and may have
 * gaps when some have left; clusters have none. After a fit of the configured workers both are the same.
 */
/** Index of a worker → its cluster. */
export type Seats = ReadonlyMap<number, number>

export interface SeatedWorker {
  readonly id: string
  readonly index: number
  /** It was told its cluster, and its experts may be placed for it. */
  readonly fixed: boolean
}

/** As a file is read: centroid k belongs to the k-th decode worker. */
export function seatsInOrder(clusters: number): Seats {
  return new Map(Array.from({ length: clusters }, (_, k) => [k, k]))
}

/** What does not fit, as a sentence; undefined when every worker has a cluster and every cluster a worker. */
export function misfit(workers: readonly SeatedWorker[], clusters: number, seats: Seats): string | undefined {
  if (workers.length === 0) return undefined // nothing can be fitted for nobody, and the next worker finds its region as it was
  if (workers.length !== clusters)
    return `${count(workers.length, 'decode worker')} and ${count(clusters, 'cluster')} in the artifact`
  const without = workers.filter(({ index }) => !seats.has(index)).map(({ id }) => id)
  return without.length === 0 ? undefined : `no cluster for ${without.join(', ')}`
}

/**
 * Seats at another number of clusters. A worker with a fixed cluster has that one or there is no re-fit, and a sentence says why; others
 * keep their number where it still exists, so that numbers change as little as regions do. With fewer clusters than workers some have none;
 * with more, those that are left are for workers to come.
 */
export function arrangeSeats(workers: readonly SeatedWorker[], clusters: number): Seats | string {
  const seats = new Map<number, number>()
  const free = new Set(Array.from({ length: clusters }, (_, k) => k))
  const take = (index: number, cluster: number) => {
    seats.set(index, cluster)
    free.delete(cluster)
  }
  const beyond = workers.find(({ fixed, index }) => fixed && index >= clusters)
  if (beyond !== undefined)
    return `${beyond.id} keeps its cluster ${beyond.index}, which a fit of ${count(clusters, 'cluster')} does not have`
  for (const fixedFirst of [true, false])
    for (const { index, fixed } of workers) if (fixed === fixedFirst && free.has(index)) take(index, index)
  for (const { index } of workers) {
    const [next] = free
    if (!seats.has(index) && next !== undefined) take(index, next)
  }
  // The next worker gets the lowest index that is free, and with it a cluster that waits for one.
  for (let index = 0; free.size > 0; index++) {
    const [next] = free
    if (!seats.has(index)) take(index, next!)
  }
  return seats
}

/** A worker with a fixed cluster gets the region nearest to its own before anybody else does. */
const FIXED_WEIGHT = 1_000

/**
 * What each new cluster should be like [clusters × width]: the centroid that its worker has now, zeros where there is none. `refit` takes
 * it for the old centroids, and the optimal assignment of new ones to them keeps every worker's region.
 */
export function wantedCentroids(
  workers: readonly SeatedWorker[],
  now: { readonly centroids: Float32Array; readonly seats: Seats },
  next: Seats,
  clusters: number,
  width: number,
): Float32Array<ArrayBuffer> {
  const wanted = new Float32Array(clusters * width)
  for (const { index, fixed } of workers) {
    const [from, to] = [now.seats.get(index), next.get(index)]
    if (from === undefined || to === undefined) continue
    const weight = fixed ? FIXED_WEIGHT : 1
    for (let d = 0; d < width; d++) wanted[to * width + d] = weight * now.centroids[from * width + d]!
  }
  return wanted
}

/** Centroids by index of their worker; rows without a worker are no numbers, so that they are like nothing. */
export function inSeats(centroids: Float32Array, width: number, seats: Seats): Float32Array {
  if ([...seats].every(([index, cluster]) => index === cluster)) return centroids
  const rows = Math.max(...seats.keys()) + 1
  const placed = new Float32Array(rows * width).fill(NaN)
  for (const [index, cluster] of seats)
    placed.set(centroids.subarray(cluster * width, (cluster + 1) * width), index * width)
  return placed
}

const count = (n: number, what: string) => `${n} ${what}${n === 1 ? '' : 's'}`
