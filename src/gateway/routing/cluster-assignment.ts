/**
 * Which cluster of the artifact each decode worker has. A worker keeps its index while it is registered, so
 * indexes have gaps after a worker has left; cluster numbers have none. After a fit of the configured workers
 * both are equal.
 */
/** Index of a worker → its cluster. */
export type ClusterAssignment = ReadonlyMap<number, number>

export interface AssignableWorker {
  readonly id: string
  readonly index: number
  /** The operator set its cluster. Experts may be placed for it. */
  readonly fixed: boolean
}

export type AssignmentResult =
  | { readonly kind: 'ok'; readonly assignment: ClusterAssignment }
  | { readonly kind: 'impossible'; readonly why: string }

/** As in a file: centroid k belongs to the k-th decode worker. */
export function identityAssignment(clusters: number): ClusterAssignment {
  return new Map(Array.from({ length: clusters }, (_, k) => [k, k]))
}

/**
 * Why clusters and workers do not match; undefined if every worker has a cluster and every cluster a worker.
 */
export function misfit(
  workers: readonly AssignableWorker[],
  clusters: number,
  assignment: ClusterAssignment,
): string | undefined {
  // Without workers there is nothing to refit for, and the next worker finds its region unchanged.
  if (workers.length === 0) return undefined
  if (workers.length !== clusters)
    return `${count(clusters, 'cluster')} for ${count(workers.length, 'decode worker')}`
  const without = workers.filter(({ index }) => !assignment.has(index)).map(({ id }) => id)
  return without.length === 0 ? undefined : `no cluster for ${without.join(', ')}`
}

/**
 * Assigns another number of clusters. A worker with a fixed cluster gets it, or the result is `impossible`.
 * Other workers keep their number if it still exists, so that few numbers change. With fewer clusters than
 * workers some workers have none; with more, the rest is reserved for workers that join later.
 */
export function assignClusters(workers: readonly AssignableWorker[], clusters: number): AssignmentResult {
  const assignment = new Map<number, number>()
  const free = new Set(Array.from({ length: clusters }, (_, k) => k))
  const take = (index: number, cluster: number) => {
    assignment.set(index, cluster)
    free.delete(cluster)
  }
  const beyond = workers.find(({ fixed, index }) => fixed && index >= clusters)
  if (beyond !== undefined) {
    const { id, index } = beyond
    return {
      kind: 'impossible',
      why: `${id} has the fixed cluster ${index}, but the fit has ${count(clusters, 'cluster')}`,
    }
  }
  for (const fixedFirst of [true, false])
    for (const { index, fixed } of workers) if (fixed === fixedFirst && free.has(index)) take(index, index)
  for (const { index } of workers) {
    const [next] = free
    if (!assignment.has(index) && next !== undefined) take(index, next)
  }
  // The next worker gets the lowest free index, and with it one of the remaining clusters.
  for (let index = 0; free.size > 0; index++) {
    const [next] = free
    if (!assignment.has(index)) take(index, next!)
  }
  return { kind: 'ok', assignment }
}

/** Makes a worker with a fixed cluster win the region nearest to its own over all other workers. */
const FIXED_WEIGHT = 1_000

/**
 * Target of each new cluster [clusters × width]: the centroid that its worker has now, zeros if it has none.
 * `refit` takes these as the old centroids and assigns the new ones to them optimally, so every worker keeps
 * its region.
 */
export function targetCentroids(
  workers: readonly AssignableWorker[],
  now: { readonly centroids: Float32Array; readonly assignment: ClusterAssignment },
  next: ClusterAssignment,
  clusters: number,
  width: number,
): Float32Array<ArrayBuffer> {
  const targets = new Float32Array(clusters * width)
  for (const { index, fixed } of workers) {
    const [from, to] = [now.assignment.get(index), next.get(index)]
    if (from === undefined || to === undefined) continue
    const weight = fixed ? FIXED_WEIGHT : 1
    for (let d = 0; d < width; d++) targets[to * width + d] = weight * now.centroids[from * width + d]!
  }
  return targets
}

/** Centroids by worker index. Rows without a worker are NaN, so that no signature is similar to them. */
export function centroidsByWorker(
  centroids: Float32Array,
  width: number,
  assignment: ClusterAssignment,
): Float32Array {
  if ([...assignment].every(([index, cluster]) => index === cluster)) return centroids
  const rows = Math.max(...assignment.keys()) + 1
  const placed = new Float32Array(rows * width).fill(NaN)
  for (const [index, cluster] of assignment)
    placed.set(centroids.subarray(cluster * width, (cluster + 1) * width), index * width)
  return placed
}

const count = (n: number, what: string) => `${n} ${what}${n === 1 ? '' : 's'}`
