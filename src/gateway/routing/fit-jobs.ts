/**
 * Work on artifacts that would block the event loop: reading and checking one touches every value, and a
 * refit takes seconds. Pure functions of values that can be sent between threads; `off-thread.ts` runs them.
 */
import type { Artifact, ArtifactAbout, FittedSignature } from '../../fit/artifact.ts'
import { artifactOf } from '../../fit/artifact-read.ts'
import { planeRows } from '../../fit/figures.ts'
import { refit } from '../../fit/refit.ts'
import { withinMemory } from '../../fit/within-memory.ts'
import { packedRows } from '../../math/packed-rows.ts'
import { principalPlane } from '../../math/pca.ts'
import { withSafetensors } from '../../trace/safetensors-file.ts'

export interface ReadArtifact {
  readonly artifact: Artifact
  /** Hash of the file, in hexadecimal. */
  readonly sha256: string
}

export interface RefitInput {
  readonly file: string
  /** Its centroids are the targets that the new ones are matched to. It has no patterns and no domains. */
  readonly artifact: Artifact
  readonly clusters: number
}

/** The parts of an artifact that a refit changes. */
export interface RefitResult {
  readonly about: ArtifactAbout
  readonly clusterOf: Uint16Array
  readonly centroids: Float32Array
  readonly fallbackCentroids?: Float32Array
}

export interface PlaneInput {
  readonly signatures: Int16Array
  readonly requests: number
  readonly width: number
}

/** A sample of the calibration requests in the plane of their first two principal components. */
export interface PlaneResult {
  /** Indexes of the sampled requests. */
  readonly rows: Uint32Array
  /** [rows × 2] */
  readonly coordinates: Float64Array
  readonly explained: readonly [number, number]
  /** [2 × width]; `offsets` are subtracted from the products. */
  readonly axes: Float64Array
  readonly offsets: readonly [number, number]
}

/** More points cannot be told apart on a screen. */
const PLANE_ROWS = 800

export const JOBS = {
  read: ({ path }: { readonly path: string }): Promise<ReadArtifact> =>
    withSafetensors(path, async file => ({
      artifact: shared(await artifactOf(file)),
      sha256: await file.sha256(),
    })),

  refit: ({ file, artifact, clusters }: RefitInput): Promise<RefitResult> =>
    withinMemory(file, () => {
      const { balance, seed, restarts } = artifact.about
      const fresh = refit(artifact, { workers: clusters, balance, seed, restarts }, file).artifact
      return {
        about: fresh.about,
        clusterOf: fresh.calibration.clusterOf,
        centroids: fresh.primary.centroids,
        fallbackCentroids: fresh.fallback?.centroids,
      }
    }),

  plane: async ({ signatures, requests, width }: PlaneInput): Promise<PlaneResult> => {
    const { rows, picked } = planeRows(signatures, requests, width, PLANE_ROWS)
    const { coordinates, explained, axes, offsets } = principalPlane(packedRows(picked, width))
    return { rows: Uint32Array.from(rows), coordinates, explained, axes, offsets }
  },
}

export type Jobs = typeof JOBS
export type JobName = keyof Jobs
export type JobInput<Name extends JobName> = Parameters<Jobs[Name]>[0]
export type JobResult<Name extends JobName> = Awaited<ReturnType<Jobs[Name]>>

/** The artifact with the result of a refit. */
export function withRefit(
  old: Artifact,
  { about, clusterOf, centroids, fallbackCentroids }: RefitResult,
): Artifact {
  return {
    about,
    primary: { ...old.primary, centroids },
    fallback: old.fallback && fallbackCentroids && { ...old.fallback, centroids: fallbackCentroids },
    calibration: { ...old.calibration, clusterOf },
  }
}

/** The artifact without the parts that a refit does not read, so that they are not copied. */
export function forRefit(
  { about, primary, fallback, calibration }: Artifact,
  targets: Float32Array,
): Artifact {
  const { requests, clusterOf } = calibration
  return {
    about,
    primary: { ...primary, centroids: targets },
    fallback,
    calibration: { requests, clusterOf },
  }
}

/** Signatures are most of what a refit reads: in shared memory they need no copy. */
function shared(artifact: Artifact): Artifact {
  const { primary, fallback } = artifact
  const share = (fitted: FittedSignature): FittedSignature => {
    const signatures = new Int16Array(new SharedArrayBuffer(fitted.signatures.byteLength))
    signatures.set(fitted.signatures)
    return { ...fitted, signatures }
  }
  return { ...artifact, primary: share(primary), fallback: fallback && share(fallback) }
}
