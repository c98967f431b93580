/** The policy of a routing table, made of an artifact as it is seen from the decode workers. */
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
import { dimensionsOf } from '../../signature/signature.ts'
import { inSeats, type Seats } from './cluster-assignment.ts'

/** `workers`: one more than the highest index of a decode worker. */
export interface TablePolicyOptions extends PolicyOptions {
  readonly policy: PolicyName | PolicyDescriptor
  /** Cluster of each decode worker (default: the k-th has cluster k). */
  readonly seats?: Seats
}

/** Requests whose hand-off had no recent counts were signed by the artifact's second signature, and are seen through it. */
const throughFallback = new WeakSet<RoutableRequest>()

export function seenThroughFallback(request: RoutableRequest): void {
  throughFallback.add(request)
}

export function isThroughFallback(request: RoutableRequest): boolean {
  return throughFallback.has(request)
}

/**
 * Neighbours are megabytes of copies, which would hold up the event loop: a change of policy makes none, nor does a re-fit, for its clusters
 * only say where to look first among the same calibration requests. Predictors hold nothing of the requests that they were asked for.
 */
const predictors = new WeakMap<Artifact['primary']['signatures'], Predictor>()

/** Nothing that the policy needs may be missing. If the artifact has two signatures, each request is routed by the one it was signed with. */
export function tablePolicy(options: TablePolicyOptions): DecodePolicy {
  const { policy, artifact, seats } = options
  const { needs } = descriptorOf(policy)
  if (artifact === undefined) return createDecodePolicy(policy, options)!
  const predictor = needs.includes('counts') ? cachedPredictor(artifact) : undefined
  const create = (view: Artifact) => createDecodePolicy(policy, { ...options, predictor, artifact: view })!
  if (!needs.includes('signature')) return create(artifact)
  const [first, second] = viewsOf(artifact).map(view => create(seated(view, seats)))
  if (second === undefined) return first!
  return {
    ...first!,
    pick: (request, ...rest) => (throughFallback.has(request) ? second : first!).pick(request, ...rest),
    dispatched(request, worker) {
      for (const each of [first!, second]) each.dispatched?.(request, worker)
    },
    released(request, worker) {
      for (const each of [first!, second]) each.released?.(request, worker)
    },
  }
}

/** The artifact, and where it has a second signature the artifact as that one sees it. */
export function viewsOf(artifact: Artifact): Artifact[] {
  return [artifact, ...(artifact.fallback === undefined ? [] : [{ ...artifact, primary: artifact.fallback }])]
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
    chances: request => (throughFallback.has(request) ? second : first!).chances(request),
  }
}

function seated(view: Artifact, seats: Seats | undefined): Artifact {
  if (seats === undefined) return view
  const { primary } = view
  return {
    ...view,
    primary: { ...primary, centroids: inSeats(primary.centroids, dimensionsOf(primary.model), seats) },
  }
}
