import { EldrError } from '../errors.ts'
import { createRandom } from '../math/random.ts'
import type { PackedRows } from '../math/packed-rows.ts'
import { isServable, TRANSFORM, type TransformName } from '../signature/transform.ts'
import type { Trace } from '../trace/trace.ts'
import { VERSION } from '../version.ts'
import { type Artifact, packPatterns, unpackSignatures } from './artifact.ts'
import { type Calibration, readCalibration } from './calibration.ts'
import { clusterSignatures, type FittedClusters } from './cluster.ts'
import type { ExpertPlacement } from './expert-placement.ts'
import { placementOf, unevenRanks } from './placement-of.ts'
import {
  bestOf,
  canJudge,
  measureTransforms,
  type Selection,
  selectSignature,
  selectUnmeasured,
} from './select-signature.ts'
import { fallbackSignature, signaturesOf } from './signatures.ts'
import type { Stages } from './stages.ts'
import type { TransformQuality } from './summary.ts'
import { checkFits, withinMemory } from './within-memory.ts'

export interface FitOptions {
  readonly workers: number
  readonly transform: TransformName | 'auto'
  readonly layers: 'auto' | 'all' | readonly number[]
  readonly balance: 'exact' | 'none'
  readonly restarts: number
  readonly pairs: number
  readonly seed: number
  /** Ranks of an expert-parallel decoder; absent if no placement is requested. */
  readonly ranks?: number
  readonly batch: number
}

/** The defaults of `eldr fit`. */
export const FIT_DEFAULTS = {
  transform: 'auto',
  layers: 'auto',
  balance: 'exact',
  restarts: 3,
  pairs: 20_000,
  seed: 0,
  batch: 32,
} as const satisfies Omit<FitOptions, 'workers'>

export interface Fitted {
  readonly artifact: Artifact
  readonly placement?: ExpertPlacement
  readonly data: Calibration
  readonly qualities: readonly TransformQuality[]
  readonly selections: readonly Selection[]
  readonly clusters: FittedClusters
  /** The signatures that were clustered. */
  readonly points: PackedRows
  readonly notes: readonly string[]
}

/**
 * From a trace to an artifact (paper §4.2–4.3): signature chosen by ρ, one balanced cluster per worker,
 * expert placement on request.
 */
export function fit(trace: Trace, options: FitOptions, stages: Stages): Promise<Fitted> {
  checkOptions(trace, options)
  return withinMemory(trace.path, () => fitChecked(trace, options, stages))
}

async function fitChecked(trace: Trace, options: FitOptions, stages: Stages): Promise<Fitted> {
  const { data, sha256 } = await stages.run('read the trace', async () => ({
    data: await readCalibration(trace),
    sha256: await trace.sha256(),
  }))
  const { qualities, selections, fallback } = await select(trace, data, options, stages)
  checkFits(trace.path, trace.requests, options.workers, selections[0]!.layers.length * trace.experts)
  const { signatures, rows, points, clusters } = await stages.run('clusters', () => {
    const { rows, ...signatures } = signaturesOf(data, selections[0]!, trace.recentHalfLife)
    if (rows.length === 0)
      throw new EldrError('ELDR_FIT_NO_SIGNAL', {
        file: trace.path,
        found: `no request with a weighted count for ${selections[0]!.transform}`,
      })
    if (rows.length < options.workers)
      throw tooSmall(trace.path, `${rows.length} requests with a signature`, options.workers)
    const points = unpackSignatures(signatures)
    return {
      signatures,
      rows,
      points,
      clusters: clusterSignatures(points, { ...options, compare: true, onProgress: stages.progress }),
    }
  })
  const artifact: Artifact = {
    about: aboutOf(trace, options, qualities, clusters, sha256),
    primary: { ...signatures, centroids: clusters.centroids },
    fallback: fallback && fallbackSignature(data, fallback, rows, clusters.clusterOf, options.workers),
    calibration: {
      requests: rows.length,
      clusterOf: Uint16Array.from(clusters.clusterOf),
      patterns:
        data.decodeCounts &&
        packPatterns(data.decodeCounts, data.decodeSteps!, rows, data.layers * data.experts),
      domain: data.domain && Uint8Array.from(rows, row => data.domain![row]!),
    },
  }
  const { ranks, batch } = options
  const placement =
    ranks === undefined
      ? undefined
      : await stages.run('placement', () => placementOf(artifact, ranks, batch, trace.path))
  const notes = [
    ...notesOf(trace, options, data, selections[0]!, rows.length),
    ...alikeNote(clusters, points.width),
  ]
  return { artifact, placement, data, qualities, selections, clusters, points, notes }
}

async function select(trace: Trace, data: Calibration, options: FitOptions, stages: Stages) {
  const selection = { ...options, random: createRandom(options.seed), onProgress: stages.progress }
  if (!canJudge(data)) return selectUnmeasured(data, selection)
  const meter = await stages.run('ρ by transform', () => measureTransforms(data, selection, trace.path))
  return stages.run('layer selection', () => {
    const selections = selectSignature(data, selection, meter)
    if (TRANSFORM[selections[0]!.transform].source !== 'recent')
      return { qualities: meter.qualities, selections }
    // A hand-off may lack recent counts; then its region must be found through plain ones.
    const transform = bestOf(meter.qualities, name => TRANSFORM[name].source === 'counts')
    const fallback =
      selections.find(other => other.transform === transform) ??
      selectSignature(data, { ...selection, transform }, meter)[0]!
    return { qualities: meter.qualities, selections, fallback }
  })
}

function aboutOf(
  trace: Trace,
  { workers, balance, seed, restarts }: FitOptions,
  qualities: readonly TransformQuality[],
  { sizes, stats }: FittedClusters,
  traceSha256: string,
): Artifact['about'] {
  const { model, layers, experts, topK, workload, domains, requests } = trace
  return {
    model,
    layers,
    experts,
    topK,
    workers,
    workload,
    domains,
    balance,
    seed,
    restarts,
    transforms: Object.fromEntries(qualities.map(({ name, rho }) => [name, rho])),
    sizes,
    ...stats,
    traceSha256,
    traceRequests: requests,
    version: VERSION,
  }
}

/** A router cannot use centroids that all point the same way. */
function alikeNote({ centroids, sizes }: FittedClusters, width: number): string[] {
  const cosine = (k: number) =>
    centroids.subarray(0, width).reduce((sum, x, d) => sum + x * centroids[k * width + d]!, 0)
  const alike = sizes.length > 1 && sizes.every((_, k) => cosine(k) > 0.9999)
  return alike ? ['All clusters are alike: the requests of this trace give no signature to route by.'] : []
}

/** Below this ρ, requests that look alike at prefill do not decode alike. */
const WEAK = 0.1

/** Notes for the user that no table shows. */
function notesOf(
  trace: Trace,
  options: FitOptions,
  data: Calibration,
  { transform, rho }: Selection,
  withSignature: number,
): string[] {
  const missing = trace.missingFor('quality')
  const why =
    missing.length > 0
      ? `The trace has no decode data (${missing.join(', ')})`
      : 'Too few requests have both counts and decode steps'
  const without = (isServable(transform) ? trace.requests : trace.gateRows) - withSignature
  const unseen = isServable(transform) ? 0 : trace.requests - trace.gateRows
  return [
    canJudge(data)
      ? ''
      : `${why}, so ρ was not measured: ${transform} was taken${options.layers === 'auto' ? ' on all layers' : ''}.`,
    rho !== undefined && rho < WEAK
      ? `ρ is ${rho.toFixed(3)}: signatures hardly tell which requests decode alike, so routing by them will hardly help.`
      : '',
    without > 0
      ? `${without} of ${trace.requests} requests have no signature (no weighted count in the kept layers) and were left out.`
      : '',
    unseen > 0 ? `${unseen} of ${trace.requests} requests have no gate scores and were left out.` : '',
    isServable(transform)
      ? ''
      : `${transform} is for study: no hand-off carries gate scores, so no gateway can use this artifact.`,
  ].filter(note => note !== '')
}

function checkOptions(trace: Trace, { workers, layers, transform, ranks }: FitOptions): void {
  const { path: file } = trace
  if (workers > trace.requests) throw tooSmall(file, `${trace.requests} requests`, workers)
  const outside = typeof layers === 'string' ? undefined : layers.find(layer => layer >= trace.layers)
  if (outside !== undefined) {
    throw new EldrError('ELDR_FIT_BAD_OPTION', {
      file,
      found: `layer ${outside}`,
      expected: `layers from 0 to ${trace.layers - 1}`,
    })
  }
  if (ranks !== undefined) {
    trace.need('quality')
    if (trace.experts % ranks !== 0) throw unevenRanks(file, ranks, trace.experts)
  }
  if (transform === 'auto') return
  if (TRANSFORM[transform].source === 'recent') trace.need('recent')
  if (isServable(transform)) return
  const tensor = transform === 'gate-prob' ? 'gate_prob_sum' : 'gate_logit_mean'
  if (!trace.has(tensor))
    throw new EldrError('ELDR_TENSOR_MISSING', { file, expected: `${tensor} for ${transform}` })
  trace.need('quality')
  if (trace.gateRows < workers) throw tooSmall(file, `${trace.gateRows} requests with gate scores`, workers)
}

function tooSmall(file: string, found: string, least: number): EldrError {
  return new EldrError('ELDR_TRACE_TOO_SMALL', { file, found, expected: `at least ${least}` })
}
