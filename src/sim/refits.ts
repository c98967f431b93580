/**
 * One artifact for every number of workers: the given one if it fits, otherwise a refit, made on first use.
 */
import { join } from 'node:path'
import { readArtifact } from '../fit/artifact-read.ts'
import { writeArtifact } from '../fit/artifact-write.ts'
import { refit } from '../fit/refit.ts'
import { withinMemory } from '../fit/within-memory.ts'

export interface Refits {
  /**
   * Maximum number of workers that the artifact can be refitted to: a cluster has at least one calibration
   * request.
   */
  readonly maxWorkers: number
  /** Clusters of the given artifact. */
  readonly workers?: number
  /** ρ of the signature; absent if it was not measured. */
  readonly rho?: number
  /** Path of the artifact for this many workers; undefined if there is no artifact. */
  pathFor(workers: number): Promise<string | undefined>
}

/** Refits are written into `folder`, which the caller removes. Threads read them from there. */
export async function openRefits(file: string | undefined, folder: string): Promise<Refits> {
  if (file === undefined) return { maxWorkers: Infinity, pathFor: () => Promise.resolve(undefined) }
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
    maxWorkers: given.calibration.requests,
    workers: given.about.workers,
    rho: given.primary.rho,
    pathFor(workers) {
      if (!made.has(workers)) made.set(workers, make(workers))
      return made.get(workers)!
    },
  }
}
