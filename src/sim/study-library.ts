/**
 * What the runs of a study share, each loaded on first use: traces, artifacts with their predictions,
 * profiles, placements.
 */
import { EldrError } from '../errors.ts'
import { loadProfile } from '../cost/profile-file.ts'
import type { CostProfile } from '../cost/profile.ts'
import type { Artifact } from '../fit/artifact.ts'
import { readArtifact } from '../fit/artifact-read.ts'
import { placementOf } from '../fit/placement-of.ts'
import { refit } from '../fit/refit.ts'
import { predictorOf } from '../policy/create-policy.ts'
import type { RoutableRequest } from '../policy/decode-policy.ts'
import type { Predictor } from '../policy/predictor.ts'
import { createSigner } from '../signature/signer.ts'
import { TRANSFORM } from '../signature/transform.ts'
import { type Trace, withTrace } from '../trace/trace.ts'
import type { PlacementSpec } from './rank-masks.ts'
import { type RecordedFile, type RecordedWorkload, readWorkload } from './recorded-workload.ts'
import { loadReplay, type Replay } from './replay.ts'
import type { Topology } from './topology.ts'
import { cachedPredictor, truePatterns } from './foresight.ts'
import type { Foresight } from './variant.ts'

export const PLACEMENTS = ['linear', 'global', 'cluster'] as const
/** Experts in their own order, spread by what all requests use, or by what each worker's cluster uses. */
export type PlacementKind = (typeof PLACEMENTS)[number]

/** An evaluation trace as seen through one artifact. */
export interface Evaluation {
  readonly replay: Replay
  readonly shape: { readonly layers: number; readonly experts: number; readonly topK: number }
  readonly artifact?: Artifact
  readonly domains: readonly string[]
  /** [rows of the replay] index into `domains`; absent if the trace has none. */
  readonly domainOf?: Uint8Array
  /** What a hand-off would say about a request of the trace; the same object each time. */
  readonly featuresOf: (request: number) => Omit<RoutableRequest, 'id'>
  /** Caches its predictions, since a trace's requests repeat. */
  predictor(foresight?: Foresight): Predictor
}

export interface StudyLibrary {
  profile(name: string): Promise<CostProfile>
  /**
   * The artifact is refitted if its number of clusters differs from the number of decode workers, as in a
   * gateway.
   */
  evaluation(trace: string, artifact: string | undefined, workers: number): Promise<Evaluation>
  placement(
    files: { readonly artifact?: string },
    kind: 'global' | 'cluster',
    topology: Topology,
  ): Promise<PlacementSpec>
  workload(file: RecordedFile): Promise<RecordedWorkload>
}

/** Requests per step for which experts are placed, as in a fit. */
const PLACED_FOR_BATCH = 32

export function createStudyLibrary(): StudyLibrary {
  const given = memo((file: string) => readArtifact(file))
  const artifactFor = memo(async (file: string, workers: number) => {
    const artifact = await given(file)
    const { balance, seed, restarts } = artifact.about
    return artifact.about.workers === workers
      ? artifact
      : refit(artifact, { workers, balance, seed, restarts }, file).artifact
  })
  const replayOf = memo((file: string) => withTrace(file, loadReplay))
  const evaluation = memo((trace: string, file: string | undefined, workers: number) =>
    withTrace(trace, async opened => {
      if (file !== undefined) checkSameModel(opened, await given(file), file)
      const artifact = file === undefined ? undefined : await artifactFor(file, workers)
      return evaluationOf(opened, await replayOf(trace), artifact && asSeenFrom(opened, artifact))
    }),
  )
  return {
    profile: memo((name: string) => loadProfile(name)),
    evaluation,
    placement: memo(
      async (
        { artifact }: { readonly artifact?: string },
        kind: 'global' | 'cluster',
        topology: Topology,
      ) => {
        const expected = 'decode patterns, from which experts are placed'
        if (artifact === undefined)
          throw new EldrError('ELDR_USAGE', {
            found: `placement ${kind}`,
            expected,
            todo: 'Give an artifact with --artifact.',
          })
        const fitted = await artifactFor(artifact, topology.decode)
        const { clusterOf } = fitted.calibration
        if (kind === 'global') {
          const asOne = { ...fitted, about: { ...fitted.about, workers: 1 } }
          const calibration = { ...fitted.calibration, clusterOf: new Uint16Array(clusterOf.length) }
          return placementOf({ ...asOne, calibration }, topology.ranks, PLACED_FOR_BATCH, artifact)
        }
        return placementOf(fitted, topology.ranks, PLACED_FOR_BATCH, artifact)
      },
    ),
    workload: memo(({ file, ...caps }: RecordedFile) => readWorkload(file, caps)),
  }
}

/** One call per distinct list of arguments. */
function memo<Arguments extends readonly unknown[], Result>(make: (...given: Arguments) => Promise<Result>) {
  const made = new Map<string, Promise<Result>>()
  return (...given: Arguments): Promise<Result> => {
    const key = JSON.stringify(given)
    if (!made.has(key)) made.set(key, make(...given))
    return made.get(key)!
  }
}

async function evaluationOf(
  trace: Trace,
  replay: Replay,
  artifact: Artifact | undefined,
): Promise<Evaluation> {
  const { layers, experts, topK } = trace
  const shape = { layers, experts, topK }
  const features = await readFeatures(trace, artifact)
  const domain = await trace.domain()
  const predictors = new Map<Foresight | undefined, Predictor>()
  function create(foresight: Foresight | undefined): Predictor {
    if (foresight === 'true') return truePatterns(replay, features)
    if (foresight === 'own' || artifact === undefined) return cachedPredictor(predictorOf({ shape }))
    return cachedPredictor(
      predictorOf({ artifact, searchedClusters: foresight === 'all' ? Infinity : undefined }),
    )
  }
  return {
    replay,
    shape,
    artifact,
    domains: trace.domains,
    domainOf: domain && Uint8Array.from(replay.requestOf, request => domain[request]!),
    featuresOf: request => features[request]!,
    predictor(foresight) {
      if (!predictors.has(foresight)) predictors.set(foresight, create(foresight))
      return predictors.get(foresight)!
    },
  }
}

function checkSameModel(trace: Trace, { about }: Artifact, file: string): void {
  if (about.layers === trace.layers && about.experts === trace.experts && about.topK === trace.topK) return
  const shape = ({ layers, experts, topK }: { layers: number; experts: number; topK: number }) =>
    `${layers} × ${experts}, top-${topK}`
  throw new EldrError('ELDR_FIT_BAD_OPTION', {
    file,
    found: `an artifact for ${shape(about)}`,
    expected: `${shape(trace)}, as the trace has`,
  })
}

/**
 * If the trace has no recent counts, an artifact that reads them is used through its fallback, as in a
 * gateway.
 */
function asSeenFrom(trace: Trace, artifact: Artifact): Artifact {
  const blind =
    TRANSFORM[artifact.primary.model.transform].source === 'recent' && !trace.has('prefill_recent')
  return blind && artifact.fallback ? { ...artifact, primary: artifact.fallback } : artifact
}

async function readFeatures(
  trace: Trace,
  artifact: Artifact | undefined,
): Promise<Omit<RoutableRequest, 'id'>[]> {
  const cells = trace.layers * trace.experts
  const recent = artifact !== undefined && TRANSFORM[artifact.primary.model.transform].source === 'recent'
  const values = recent ? await trace.prefillRecent() : await trace.prefillCounts()
  const domain = await trace.domain()
  const known = artifact?.about.domains ?? trace.domains
  // a domain unknown to the artifact counts as none
  const indexOf = trace.domains.map(name => known.indexOf(name))
  const signer = artifact && createSigner(artifact.primary.model)
  return Array.from({ length: trace.requests }, (_, request): Omit<RoutableRequest, 'id'> => {
    const counts = values.subarray(request * cells, (request + 1) * cells)
    const signature = signer?.sign(counts)
    const index = domain === undefined ? -1 : indexOf[domain[request]!]!
    return { counts, signature, domain: index >= 0 ? index : undefined }
  })
}
