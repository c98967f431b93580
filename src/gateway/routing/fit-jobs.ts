/**
 * Work on artifacts that would hold up the event loop: reading one and proving it sound touches every value, a re-fit takes seconds. Plain
 * functions of values that travel between threads; `off-thread.ts` says where they run.
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
  /** Of the file, in hexadecimal. */
  readonly sha256: string
}

export interface RefitInput {
  readonly file: string
  /** With the centroids that the new ones are matched to; patterns and domains stay at home. */
  readonly artifact: Artifact
  readonly clusters: number
}

/** What a re-fit changes of an artifact. */
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

/** Some of the calibration requests in the plane of their first two principal components. */
export interface PlaneResult {
  /** Which of them. */
  readonly rows: Uint32Array
  /** [rows × 2] */
  readonly coordinates: Float64Array
  readonly explained: readonly [number, number]
  /** [2 × width], and what is taken away of each product. */
  readonly axes: Float64Array
  readonly offsets: readonly [number, number]
}

/** As many as can be told apart on a screen. */
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
        ...(fresh.fallback && { fallbackCentroids: fresh.fallback.centroids }),
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

/** An artifact after a re-fit of it. */
export function withRefit(
  old: Artifact,
  { about, clusterOf, centroids, fallbackCentroids }: RefitResult,
): Artifact {
  return {
    about,
    primary: { ...old.primary, centroids },
    ...(old.fallback && fallbackCentroids && { fallback: { ...old.fallback, centroids: fallbackCentroids } }),
    calibration: { ...old.calibration, clusterOf },
  }
}

/** Without what a re-fit does not look at, so that it need not travel. */
export function forRefit(
  { about, primary, fallback, calibration }: Artifact,
  wanted: Float32Array,
): Artifact {
  const { requests, clusterOf } = calibration
  return {
    about,
    primary: { ...primary, centroids: wanted },
    ...(fallback && { fallback }),
    calibration: { requests, clusterOf },
  }
}

/** Signatures are the bulk of what a re-fit reads: in shared memory they are there already when it begins. */
function shared(artifact: Artifact): Artifact {
  const { primary, fallback } = artifact
  const share = (fitted: FittedSignature): FittedSignature => {
    const signatures = new Int16Array(new SharedArrayBuffer(fitted.signatures.byteLength))
    signatures.set(fitted.signatures)
    return { ...fitted, signatures }
  }
  return { ...artifact, primary: share(primary), ...(fallback && { fallback: share(fallback) }) }
}
