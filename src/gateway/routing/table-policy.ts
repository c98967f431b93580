/**
 * The policy of a routing table, built from an artifact whose centroids are in the order of the decode
 * workers.
 */
import type { Artifact } from '../../fit/artifact.ts'
import { createDecodePolicy, predictorOf } from '../../policy/create-policy.ts'
import {
  type DecodePolicy,
  descriptorOf,
  type PolicyDescriptor,
  type PolicyName,
  type PolicyOptions,
  type RoutableRequest,
} from '../../policy/decode-policy.ts'
import type { Predictor } from '../../policy/predictor.ts'
import { rowMatrixOf } from '../../math/row-matrix.ts'
import { dimensionsOf } from '../../signature/signature.ts'
import { isServable } from '../../signature/transform.ts'
import { centroidsByWorker, type ClusterAssignment } from './cluster-assignment.ts'

/** `workers`: the highest index of a decode worker, plus one. */
export interface TablePolicyOptions extends PolicyOptions {
  readonly policy: PolicyName | PolicyDescriptor
  /** Cluster of each decode worker (default: the k-th has cluster k). */
  readonly assignment?: ClusterAssignment
  /** Leaves out the cosines that a policy does not use itself. */
  readonly withoutCosines?: boolean
}

/**
 * Requests whose hand-off had no recent counts: they are signed and routed with the artifact's second
 * signature.
 */
const withFallback = new WeakSet<RoutableRequest>()

export function useFallback(request: RoutableRequest): void {
  withFallback.add(request)
}

export function usesFallback(request: RoutableRequest): boolean {
  return withFallback.has(request)
}

/**
 * A predictor copies megabytes of neighbours, which would block the event loop. It is reused after a policy
 * change and after a refit, whose clusters only say where to search first among the same calibration
 * requests. Predictors keep no state of requests.
 */
const predictors = new WeakMap<Artifact['primary']['signatures'], Predictor>()

/**
 * Requires that nothing the policy needs is missing. If the artifact has two signatures, each request is
 * routed by the one it was signed with.
 */
export function tablePolicy(options: TablePolicyOptions): DecodePolicy {
  const { policy, artifact, assignment } = options
  const { needs } = descriptorOf(policy)
  if (artifact === undefined) return createDecodePolicy(policy, options)!
  const predictor = needs.includes('counts') ? cachedPredictor(artifact) : undefined
  const create = (view: Artifact) => createDecodePolicy(policy, { ...options, predictor, artifact: view })!
  if (!needs.includes('signature')) {
    const created = create(artifact)
    if (options.withoutCosines || !needs.includes('counts')) return created
    if (!isServable(artifact.primary.model.transform)) return created
    return comparing(
      created,
      viewsOf(artifact).map(view => orderedByWorker(view, assignment)),
    )
  }
  const [first, second] = viewsOf(artifact).map(view => create(orderedByWorker(view, assignment)))
  if (second === undefined) return first!
  const own = (request: RoutableRequest) => (withFallback.has(request) ? second : first!)
  // State about load needs all requests; state about traffic cannot compare signatures of the other kind.
  const told = (request: RoutableRequest) => (first!.ownRequestsOnly ? [own(request)] : [first!, second])
  return {
    ...first!,
    pick: (request, ...rest) => own(request).pick(request, ...rest),
    dispatched(request, worker) {
      for (const each of told(request)) each.dispatched?.(request, worker)
    },
    released(request, worker) {
      for (const each of told(request)) each.released?.(request, worker)
    },
  }
}

/**
 * Adds the cosines to the workers' centroids, which the policy itself does not use: operators watch how well
 * traffic fits the artifact.
 */
function comparing(policy: DecodePolicy, views: readonly Artifact[]): DecodePolicy {
  const matrices = views.map(({ primary }) => rowMatrixOf(primary.centroids, dimensionsOf(primary.model)))
  return {
    ...policy,
    pick(request, candidates, ctx) {
      const decision = policy.pick(request, candidates, ctx)
      const matrix = matrices[usesFallback(request) ? 1 : 0]
      const { signature } = request
      if (signature === undefined || matrix?.width !== signature.length) return decision
      const cosines = new Float32Array(matrix.rows)
      matrix.similarities(signature, cosines)
      const similarities = Float32Array.from(candidates, ({ worker }) => cosines[worker] ?? NaN)
      return { ...decision, similarities }
    },
  }
}

/** The artifact, and if it has a second signature, the artifact with that one as its primary signature. */
export function viewsOf(artifact: Artifact): Artifact[] {
  return [artifact, ...(artifact.fallback === undefined ? [] : [{ ...artifact, primary: artifact.fallback }])]
}

/** The predictor of a table. Requires an artifact, or the shape of the model. */
export function predictorFor({ artifact, shape }: Pick<PolicyOptions, 'artifact' | 'shape'>): Predictor {
  return artifact === undefined ? predictorOf({ shape }) : cachedPredictor(artifact)
}

function cachedPredictor(artifact: Artifact): Predictor {
  const { signatures } = artifact.primary
  let predictor = predictors.get(signatures)
  if (predictor === undefined) predictors.set(signatures, (predictor = joinedPredictor(artifact)))
  return predictor
}

function joinedPredictor(artifact: Artifact): Predictor {
  const [first, second] = viewsOf(artifact).map(view => predictorOf({ artifact: view }))
  if (second === undefined) return first!
  return {
    cells: first!.cells,
    chances: request => (withFallback.has(request) ? second : first!).chances(request),
  }
}

function orderedByWorker(view: Artifact, assignment: ClusterAssignment | undefined): Artifact {
  if (assignment === undefined) return view
  const { primary } = view
  const centroids = centroidsByWorker(primary.centroids, dimensionsOf(primary.model), assignment)
  return { ...view, primary: { ...primary, centroids } }
}
