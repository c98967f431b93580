/** Runs drift scenarios: fits their artifacts, then simulates every cell with every seed on all cores. */
import { isLoadBalancer } from '../../policy/decode-policy.ts'
import type { SimulationResult } from '../result.ts'
import { openStudy } from '../study-pool.ts'
import type { StudyJob } from '../study.ts'
import { parseTopology } from '../topology.ts'
import { parseVariant } from '../variant.ts'
import { driftArtifacts } from './artifacts.ts'
import { type DriftFigures, figuresOf } from './bound.ts'
import { cellsOf, type DriftOptions, recipeOf, settingOf } from './drift-runs.ts'

type Progress = (what: string, done: number, of: number) => void

/** Artifacts are written into `folder`, which the caller removes. */
export async function runDrift(
  options: DriftOptions,
  folder: string,
  onProgress?: Progress,
): Promise<DriftFigures[]> {
  const cells = cellsOf(options)
  const jobs = await driftJobs(options, folder, onProgress)
  // Load balancers do not look at the artifact, so several scenarios are the same run for them.
  const keys = jobs.map(job => JSON.stringify(job))
  const different = new Map(keys.map((key, at) => [key, jobs[at]!]))
  const { traffics, profile, topology, requests } = options
  const trace = traffics[0]!.evaluation
  const pool = openStudy({ trace, profile, topology, requests, arrivals: 'poisson', rows: 'passes' })
  const results = await pool
    .run([...different.values()], (done, of) => onProgress?.('runs', done, of))
    .finally(pool.close)
  const resultOf = new Map<string, SimulationResult>()
  for (const key of different.keys()) resultOf.set(key, results[resultOf.size]!)
  return figuresOf(
    cells.map((cell, at) => ({
      cell,
      variant: cell.variant,
      rate: cell.rate,
      runs: options.seeds.map((_, s) => resultOf.get(keys[s * cells.length + at]!)!),
    })),
  )
}

/** Every cell with every seed, seeds outermost as in `sweep`. Their artifacts are fitted here. */
export async function driftJobs(
  options: DriftOptions,
  folder: string,
  onProgress?: Progress,
): Promise<StudyJob[]> {
  const cells = cellsOf(options)
  const artifacts = driftArtifacts(folder, parseTopology(options.topology).decode)
  const jobs: StudyJob[] = []
  for (const seed of options.seeds) {
    for (const cell of cells) {
      const { variant, rate } = cell
      const setting = settingOf(cell, options, seed)
      const withArtifact = isLoadBalancer(parseVariant(variant)!.policy)
        ? { clusters: undefined }
        : { artifact: await artifacts.pathOf(recipeOf(cell.scenario, cell.traffic, seed)) }
      jobs.push({ variant, rate, seed, setting: { ...setting, ...withArtifact } })
    }
    onProgress?.('fits for seeds', seed - options.seeds[0]! + 1, options.seeds.length)
    await new Promise(setImmediate) // lets Ctrl-C through
  }
  return jobs
}
