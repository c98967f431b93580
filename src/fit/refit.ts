import { EldrError } from '../errors.ts'
import { centroidsOf } from '../math/centroids.ts'
import { dimensionsOf } from '../signature/signature.ts'
import { VERSION } from '../version.ts'
import { type Artifact, unpackSignatures } from './artifact.ts'
import {
  type ClusterOptions,
  clusterSignatures,
  type FittedClusters,
  matchClusters,
  renumber,
} from './cluster.ts'
import { checkFits } from './within-memory.ts'

export interface Refitted {
  readonly artifact: Artifact
  readonly clusters: FittedClusters
}

/**
 * Clusters for another number of workers from the artifact alone (paper §4.1: a refit at the new worker
 * count). The signature does not change. Clusters are numbered so that remaining workers keep the region
 * closest to their own.
 */
export function refit(old: Artifact, options: ClusterOptions, file: string): Refitted {
  const { requests } = old.calibration
  if (options.workers > requests) {
    throw new EldrError('ELDR_TRACE_TOO_SMALL', {
      file,
      found: `${requests} calibration requests`,
      expected: `at least ${options.workers}, one for each worker`,
    })
  }
  const width = dimensionsOf(old.primary.model)
  checkFits(file, requests, options.workers, width)
  const points = unpackSignatures(old.primary)
  const fresh = clusterSignatures(points, options)
  const clusters = renumber(fresh, matchClusters(old.primary.centroids, fresh.centroids, width), width)
  const about = {
    ...old.about,
    workers: options.workers,
    balance: options.balance,
    seed: options.seed,
    restarts: options.restarts,
    sizes: clusters.sizes,
    ...clusters.stats,
    version: VERSION,
  }
  const fallback = old.fallback && {
    ...old.fallback,
    centroids: centroidsOf(unpackSignatures(old.fallback), clusters.clusterOf, options.workers),
  }
  return {
    artifact: {
      about,
      primary: { ...old.primary, centroids: clusters.centroids },
      fallback,
      calibration: { ...old.calibration, clusterOf: Uint16Array.from(clusters.clusterOf) },
    },
    clusters,
  }
}
