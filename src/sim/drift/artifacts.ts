/** The artifacts of drift scenarios: fitted on first use, written into a folder for the threads to read. */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { writeArtifact } from '../../fit/artifact-write.ts'
import { fit, FIT_DEFAULTS } from '../../fit/fit.ts'
import { createStages } from '../../fit/stages.ts'
import { type Trace, withTrace } from '../../trace/trace.ts'
import { unrelatedRequests, shuffledExperts, withoutDomain } from '../../trace/trace-views.ts'
import { RANDOM_ARTIFACTS } from './random-artifacts.ts'

/** A fit of a calibration trace as it is, or of one of its views. */
export interface ArtifactRecipe {
  readonly calibration: string
  /** Left out of the fit. */
  readonly without?: string
  /** Seeds of the permutations. */
  readonly shuffledBy?: number
  readonly noiseBy?: number
  /** Drawn at random after the fit. */
  readonly drawn?: { readonly what: keyof typeof RANDOM_ARTIFACTS; readonly seed: number }
}

export interface DriftArtifacts {
  /** Path of the artifact. */
  pathOf(recipe: ArtifactRecipe): Promise<string>
}

/** The caller removes `folder`. */
export function driftArtifacts(folder: string, workers: number): DriftArtifacts {
  const made = new Map<string, Promise<string>>()
  async function make(recipe: ArtifactRecipe): Promise<string> {
    const name = createHash('sha256')
      .update(JSON.stringify({ ...recipe, workers }))
      .digest('hex')
      .slice(0, 16)
    const path = join(folder, `${name}.artifact.safetensors`)
    return withTrace(recipe.calibration, async trace => {
      const { artifact } = await fit(
        await viewOf(trace, recipe),
        { ...FIT_DEFAULTS, workers },
        createStages(),
      )
      const { drawn } = recipe
      await writeArtifact(path, drawn ? RANDOM_ARTIFACTS[drawn.what](artifact, drawn.seed) : artifact)
      return path
    })
  }
  return {
    pathOf(recipe) {
      const key = JSON.stringify(recipe)
      if (!made.has(key)) made.set(key, make(recipe))
      return made.get(key)!
    },
  }
}

export async function viewOf(
  trace: Trace,
  { without, shuffledBy, noiseBy }: Omit<ArtifactRecipe, 'calibration'>,
): Promise<Trace> {
  if (without !== undefined) return withoutDomain(trace, without)
  if (shuffledBy !== undefined) return shuffledExperts(trace, shuffledBy)
  return noiseBy === undefined ? trace : unrelatedRequests(trace, noiseBy)
}
