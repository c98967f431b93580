/** One artifact for every number of workers: the given one where it fits, and re-fits of it, made when they are first asked for. */
import { join } from 'node:path'
import { readArtifact } from '../fit/artifact-read.ts'
import { writeArtifact } from '../fit/artifact-write.ts'
import { refit } from '../fit/refit.ts'
import { withinMemory } from '../fit/within-memory.ts'

export interface Refits {
  /** Most workers that the artifact can be re-fitted to: a cluster has one calibration request at least. */
  readonly most: number
  /** Clusters of the artifact as it was given. */
  readonly workers?: number
  /** Of the signature; absent where it was not measured. */
  readonly rho?: number
  /** Path of the artifact for so many workers; undefined when there is none at all. */
  pathFor(workers: number): Promise<string | undefined>
}

/** Re-fits are written into `folder`, which is the caller's to remove. Threads read them from there. */
export async function openRefits(file: string | undefined, folder: string): Promise<Refits> {
  if (file === undefined) return { most: Infinity, pathFor: () => Promise.resolve(undefined) }
  const given = await readArtifact(file)
  const { balance, seed, restarts } = given.about
  const made = new Map([[given.about.workers, Promise.resolve(file)]])
  async function make(workers: number): Promise<string> {
    const path = join(folder, `${workers}.artifact.safetensors`)
    const { artifact } = await withinMemory(file!, () =>
      refit(given, { workers, balance, seed, restarts }, file!),
    )
    await writeArtifact(path, artifact)
    return path
  }
  return {
    most: given.calibration.requests,
    workers: given.about.workers,
    ...(given.primary.rho !== undefined && { rho: given.primary.rho }),
    pathFor(workers) {
      if (!made.has(workers)) made.set(workers, make(workers))
      return made.get(workers)!
    },
  }
}
