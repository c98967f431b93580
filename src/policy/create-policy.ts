import type { Artifact } from '../fit/artifact.ts'
import { dimensionsOf } from '../signature/signature.ts'
import { isServable } from '../signature/transform.ts'
import { anticipating } from './anticipate.ts'
import { jsq, powerOfTwo, random, roundRobin } from './by-load.ts'
import type { DecodePolicy, PolicyName } from './decode-policy.ts'
import { domain } from './domain.ts'
import { eldr } from './eldr.ts'
import { createNeighbours, type Neighbours, type NeighboursOptions } from './neighbours.ts'
import { createPredictor, type Predictor } from './predictor.ts'
import { DEFAULT_COST, union, type UnionCost } from './union.ts'

export interface PolicySettings {
  readonly workers: number
  /** What a fit found. `eldr` and `domain` need it; `union` predicts better with it. */
  readonly artifact?: Artifact
  /** Shape of the model, where there is no artifact to tell it. */
  readonly shape?: { readonly layers: number; readonly experts: number; readonly topK: number }
  /** Locality band of `eldr`. */
  readonly tau?: number
  /** Costs of `union`: from a profile, or the built-in ones. */
  readonly cost?: UnionCost
  /** Replaces the prediction of `union`: true patterns in a study, remembered ones in a simulation. */
  readonly predictor?: Predictor
  /**
   * Requests on a worker that other gateways are supposed to have dispatched there and that the candidates' loads do not show yet: `on` of
   * `createUnseen`. For gateways that share their loads; without it a policy takes loads as they are.
   */
  readonly unseen?: (worker: number) => number
}

/** A policy by its name; undefined when what it needs is not there: `missingFor` says what. */
export function createDecodePolicy(name: PolicyName, settings: PolicySettings): DecodePolicy | undefined {
  if (missingFor(name, settings) !== undefined) return undefined
  const policy = exactPolicy(name, settings)
  return settings.unseen === undefined ? policy : anticipating(policy, settings.unseen)
}

/** A policy that takes loads as they are. What it needs is there. */
function exactPolicy(name: PolicyName, settings: PolicySettings): DecodePolicy {
  const { workers, artifact, tau, cost = DEFAULT_COST } = settings
  switch (name) {
    case 'random':
      return random()
    case 'round_robin':
      return roundRobin()
    case 'jsq':
      return jsq()
    case 'power_of_two':
      return powerOfTwo()
    case 'domain':
      return domain({ shares: domainShares(artifact!), workers })
    case 'eldr': {
      const { centroids, model } = artifact!.primary
      return eldr({ centroids, dimensions: dimensionsOf(model), ...(tau !== undefined && { tau }) })
    }
    case 'union': {
      const predictor = settings.predictor ?? predictorOf(settings)
      const layers = artifact?.about.layers ?? settings.shape!.layers
      return union({ workers, layers, predictor, cost })
    }
  }
}

/** What a policy lacks, as a phrase for a person; undefined when nothing. */
export function missingFor(name: PolicyName, { artifact, shape }: PolicySettings): string | undefined {
  if (name === 'eldr') {
    if (artifact === undefined) return 'an artifact with centroids'
    return isServable(artifact.primary.model.transform)
      ? undefined
      : 'an artifact that reads counts: this one was fitted on gate scores'
  }
  if (name === 'domain' && domainShares(artifact).length === 0) return 'an artifact of a trace with domains'
  if (name === 'union' && artifact === undefined && shape === undefined)
    return 'an artifact, or the shape of the model'
  return undefined
}

/** `searchedClusters`: as `NeighboursOptions` has it. */
export function predictorOf({
  artifact,
  shape,
  searchedClusters,
}: Pick<PolicySettings, 'artifact' | 'shape'> & Pick<NeighboursOptions, 'searchedClusters'>): Predictor {
  const { layers, experts, topK } = artifact?.about ?? shape!
  const neighbours = artifact === undefined ? undefined : neighboursOf(artifact, searchedClusters)
  return createPredictor({ layers, experts, topK, ...(neighbours && { neighbours }) })
}

/** The calibration requests of an artifact; undefined when it holds no decode patterns. */
export function neighboursOf(
  { primary, calibration }: Artifact,
  searchedClusters?: number,
): Neighbours | undefined {
  if (calibration.patterns === undefined || !isServable(primary.model.transform)) return undefined
  return createNeighbours({
    centroids: primary.centroids,
    signatures: primary.signatures,
    clusterOf: calibration.clusterOf,
    patterns: calibration.patterns,
    dimensions: dimensionsOf(primary.model),
    ...(searchedClusters !== undefined && { searchedClusters }),
  })
}

function domainShares(artifact: Artifact | undefined): number[] {
  const domains = artifact?.calibration.domain
  if (artifact === undefined || domains === undefined) return []
  const shares = artifact.about.domains.map(() => 0)
  for (const index of domains) shares[index]!++
  return shares
}
