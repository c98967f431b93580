/** Cells of decode workers in a study: what their policies see, and how a request gets to its cell. */
import type { Artifact } from '../fit/artifact.ts'
import { band } from '../policy/band.ts'
import { cellsOfAlike, inCells } from '../policy/cells.ts'
import type { DecodePolicy } from '../policy/decode-policy.ts'
import { jsq } from '../policy/jsq.ts'
import { random } from '../policy/random-pick.ts'
import { dimensionsOf } from '../signature/signature.ts'

export interface CellsData {
  /** Divides the number of decode workers. */
  readonly count: number
  /**
   * random: any cell, as a load balancer in front would choose; load: the least loaded. These cells are all
   * alike, each with clusters for its number of workers. locality: by signature, as `band` does,
   * to cells of workers with similar centroids; if there are more workers than calibration requests, only
   * cells have clusters, not their workers.
   */
  readonly by: 'random' | 'load' | 'locality'
}

/** Number of clusters in the artifact that signs and predicts: one for each worker of the first choice. */
export function clustersOf(cells: CellsData | undefined, workers: number): number {
  if (cells === undefined) return workers
  return cells.by === 'locality' ? cells.count : sizeOf(cells, workers)
}

function sizeOf({ count }: CellsData, workers: number): number {
  if (Number.isInteger(workers / count)) return workers / count
  throw new RangeError(`cannot split ${workers} workers into ${count} cells of equal size`)
}

export interface Cells {
  /** What the inner policies see; absent if the study has none. */
  readonly artifact?: Artifact
  /** Turns a policy inside cells into a policy for all workers. */
  around(inner: DecodePolicy): DecodePolicy
}

/** `artifactFor`: the artifact refitted for this many workers, if there is one. */
export async function cellsOf(
  data: CellsData,
  workers: number,
  artifactFor: (workers: number) => Promise<Artifact | undefined>,
): Promise<Cells> {
  const { count, by } = data
  const size = sizeOf(data, workers)
  if (by === 'locality') {
    const max = (await artifactFor(count))?.calibration.requests ?? 0
    return workers <= max
      ? alike(await artifactFor(workers), count)
      : oneEach(await artifactFor(count), workers)
  }
  const artifact = await artifactFor(size)
  const cellOf = Int32Array.from({ length: workers }, (_, worker) => Math.floor(worker / size))
  return {
    artifact: artifact && repeated(artifact, count),
    around: inner => inCells({ cellOf, inner, outer: by === 'random' ? random() : jsq() }),
  }
}

/** Workers with similar centroids share a cell. */
function alike(artifact: Artifact | undefined, count: number): Cells {
  if (artifact === undefined) throw noArtifact()
  const dimensions = dimensionsOf(artifact.primary.model)
  const { cellOf, centroids } = cellsOfAlike(
    artifact.primary.centroids,
    dimensions,
    count,
    artifact.about.seed,
  )
  return { artifact, around: inner => inCells({ cellOf, inner, outer: band({ centroids, dimensions }) }) }
}

/** One cluster per cell: all its workers have that centroid. */
function oneEach(artifact: Artifact | undefined, workers: number): Cells {
  if (artifact === undefined) throw noArtifact()
  const { centroids, model } = artifact.primary
  const dimensions = dimensionsOf(model)
  const size = workers / artifact.about.workers
  const cellOf = Int32Array.from({ length: workers }, (_, worker) => Math.floor(worker / size))
  const all = new Float32Array(workers * dimensions)
  cellOf.forEach((cell, worker) =>
    all.set(centroids.subarray(cell * dimensions, (cell + 1) * dimensions), worker * dimensions),
  )
  return {
    artifact: { ...artifact, primary: { ...artifact.primary, centroids: all } },
    around: inner => inCells({ cellOf, inner, outer: band({ centroids, dimensions }) }),
  }
}

const noArtifact = () => new RangeError('cells by locality need an artifact')

/** Repeats one cell's artifact for all cells: worker w of each has the same centroid. */
function repeated(artifact: Artifact, count: number): Artifact {
  const { centroids } = artifact.primary
  const all = new Float32Array(count * centroids.length)
  for (let cell = 0; cell < count; cell++) all.set(centroids, cell * centroids.length)
  return { ...artifact, primary: { ...artifact.primary, centroids: all } }
}
