/** Fits used by all exhibits: the paper's recipe for 16 workers, and its ablations. */
import { join } from 'node:path'
import { writeArtifact } from '../fit/artifact-write.ts'
import { figuresOf } from '../fit/figures.ts'
import { fit, type FitOptions, type Fitted } from '../fit/fit.ts'
import { refit } from '../fit/refit.ts'
import { createStages } from '../fit/stages.ts'
import { summaryOf } from '../fit/summarise.ts'
import type { FitFigures, FitSummary } from '../fit/summary.ts'
import type { TransformName } from '../signature/transform.ts'
import { withTrace } from '../trace/trace.ts'
import { type ClusterQuality, clusterQualities } from './cluster-quality.ts'
import type { TracePair } from './traces.ts'

/** Paper §6: count-idf on greedily selected layers, 16 balanced clusters, one per decoder. */
export const RECIPE: FitOptions = {
  workers: 16,
  transform: 'count-idf',
  layers: 'auto',
  balance: 'exact',
  restarts: 3,
  pairs: 20_000,
  seed: 0,
  batch: 32,
}

/** Transforms simulated besides the recipe's: those that a hand-off can carry. */
export const OTHER_TRANSFORMS = ['count', 'sqrt', 'binary'] as const satisfies readonly TransformName[]
/** Worker counts besides the recipe's (Table 2; Fig. 9 and 18 use 8). */
export const OTHER_WORKERS = [8, 24] as const

/** Paths of artifacts. */
export interface Artifacts {
  readonly recipe: string
  readonly vanilla: string
  readonly transforms: Readonly<Record<(typeof OTHER_TRANSFORMS)[number], string>>
  readonly workers: Readonly<Record<(typeof OTHER_WORKERS)[number], string>>
}

export interface Workload extends TracePair {
  readonly summary: FitSummary
  /** With 8 clusters, as in the paper's figure. */
  readonly figures: FitFigures
  /** Empty without ablations. */
  readonly clusterQualities: readonly ClusterQuality[]
  /** Cluster sizes of plain K-means, in descending order; empty without ablations. */
  readonly vanillaSizes: readonly number[]
  readonly artifacts: Artifacts
}

/** Without `ablations` only the recipe's artifact is written. */
export async function fitWorkload(pair: TracePair, folder: string, ablations: boolean): Promise<Workload> {
  const { workload, calibration } = pair
  const file = (what: string) => join(folder, `${workload}.${what}.artifact.safetensors`)
  const stages = createStages()
  return withTrace(calibration.path, async trace => {
    const fitted = async (change: Partial<FitOptions>, to: string): Promise<Fitted> => {
      const result = await fit(trace, { ...RECIPE, ...change }, stages)
      await writeArtifact(file(to), result.artifact)
      return result
    }
    const recipe = await fitted({}, 'recipe')
    const refitted = (change: Partial<FitOptions>) =>
      refit(recipe.artifact, { ...RECIPE, ...change }, calibration.name)
    const of8 = refitted({ workers: 8 })
    const vanilla = ablations ? refitted({ balance: 'none' }) : undefined
    if (vanilla !== undefined) {
      for (const transform of OTHER_TRANSFORMS) await fitted({ transform }, transform)
      await writeArtifact(file('vanilla'), vanilla.artifact)
      await writeArtifact(file('8'), of8.artifact)
      await writeArtifact(file('24'), refitted({ workers: 24 }).artifact)
    }
    return {
      ...pair,
      summary: summaryOf(recipe, trace, RECIPE, []),
      figures: figuresOf({ ...recipe, ...of8 }, trace.domains),
      clusterQualities: ablations ? clusterQualities(recipe.data, RECIPE, calibration.name) : [],
      vanillaSizes: vanilla?.clusters.sizes.toSorted((a, b) => b - a) ?? [],
      artifacts: {
        recipe: file('recipe'),
        vanilla: file('vanilla'),
        transforms: { count: file('count'), sqrt: file('sqrt'), binary: file('binary') },
        workers: { 8: file('8'), 24: file('24') },
      },
    }
  })
}
