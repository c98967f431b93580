/** The policy of a routing table, made of an artifact as it is seen from the decode workers. */
import type { Artifact } from '../../fit/artifact.ts'
import { createDecodePolicy, type PolicySettings, predictorOf } from '../../policy/create-policy.ts'
import type { DecodePolicy, PolicyName, RoutableRequest } from '../../policy/decode-policy.ts'
import type { Predictor } from '../../policy/predictor.ts'
import type { UnionCost } from '../../policy/union.ts'
import { dimensionsOf } from '../../signature/signature.ts'
import type { Shape } from './read-experts.ts'
import { inSeats, type Seats } from './cluster-assignment.ts'

export interface TablePolicyOptions {
  readonly policy: PolicyName
  readonly tau: number
  /** One more than the highest index of a decode worker. */
  readonly workers: number
  /** Of the model, where no artifact tells it: as the first hand-off has it. */
  readonly shape?: Shape
  readonly cost?: UnionCost
  /** What other gateways are supposed to have sent unseen; where there are others. */
  readonly unseen?: (worker: number) => number
  /** Cluster of each decode worker; the k-th has cluster k unless told. */
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

export function settingsOf(
  { workers, tau, cost, shape, unseen }: TablePolicyOptions,
  artifact: Artifact | undefined,
): PolicySettings {
  return {
    workers,
    tau,
    ...(unseen && { unseen }),
    ...(cost && { cost }),
    ...(shape && { shape }),
    ...(artifact && { artifact }),
  }
}

/** What the policy needs must be there. Of an artifact with two signatures each request is seen through the one that it was signed by. */
export function tablePolicy(options: TablePolicyOptions, artifact: Artifact | undefined): DecodePolicy {
  const { policy } = options
  if (artifact === undefined) return createDecodePolicy(policy, settingsOf(options, undefined))!
  if (policy === 'union')
    return createDecodePolicy('union', {
      ...settingsOf(options, artifact),
      predictor: cachedPredictor(options, artifact),
    })!
  if (policy !== 'eldr') return createDecodePolicy(policy, settingsOf(options, artifact))!
  const [first, second] = viewsOf(artifact).map(view =>
    createDecodePolicy('eldr', settingsOf(options, seated(view, options.seats)))!,
  )
  if (second === undefined) return first!
  // There is one state to keep, the registry's: eldr itself has none.
  return {
    name: 'eldr',
    pick: (request, ...rest) => (throughFallback.has(request) ? second : first!).pick(request, ...rest),
  }
}

/** The artifact, and where it has a second signature the artifact as that one sees it. */
export function viewsOf(artifact: Artifact): Artifact[] {
  return [artifact, ...(artifact.fallback === undefined ? [] : [{ ...artifact, primary: artifact.fallback }])]
}

function cachedPredictor(options: TablePolicyOptions, artifact: Artifact): Predictor {
  const { signatures } = artifact.primary
  let predictor = predictors.get(signatures)
  if (predictor === undefined) predictors.set(signatures, (predictor = joinedPredictor(options, artifact)))
  return predictor
}

function joinedPredictor(options: TablePolicyOptions, artifact: Artifact): Predictor {
  const [first, second] = viewsOf(artifact).map(view => predictorOf(settingsOf(options, view)))
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
