import type { Trace } from '../trace/trace.ts'
import type { Artifact } from './artifact.ts'
import type { Fitted, FitOptions } from './fit.ts'
import type { ExpertPlacement } from './expert-placement.ts'
import type { ClusterSummary, FitSource, FitSummary, PlacementSummary } from './summary.ts'

/** The results of a fit as plain data. */
export function summaryOf(
  fitted: Fitted,
  trace: Trace,
  options: FitOptions,
  stages: FitSummary['stages'],
): FitSummary {
  const { artifact, qualities, selections, notes } = fitted
  const source: FitSource = {
    file: trace.path,
    sha256: artifact.about.traceSha256,
    model: trace.model,
    workload: trace.workload,
    requests: trace.requests,
    layers: trace.layers,
    experts: trace.experts,
    topK: trace.topK,
    domains: trace.domains,
    version: artifact.about.version,
  }
  const curves = selections.flatMap(({ curve }) => (curve === undefined ? [] : [curve]))
  return {
    ...clusterPart(fitted, fitted.placement),
    source,
    seed: options.seed,
    asked: {
      transform: options.transform,
      layers: typeof options.layers === 'string' ? options.layers : 'list',
    },
    transforms: qualities,
    curves,
    stages,
    notes,
  }
}

/** The part common to a fit and a refit. */
export function clusterPart(
  { artifact, clusters }: Pick<Fitted, 'artifact' | 'clusters'>,
  placement?: ExpertPlacement,
) {
  const { about, primary } = artifact
  return {
    workers: about.workers,
    balance: about.balance,
    chosen: primary.model.transform,
    layers: Array.from(primary.model.layers),
    rho: primary.rho,
    clusters: clusterSummaries(artifact),
    meanSimilarity: about.meanSimilarity,
    vanillaSizes: clusters.vanillaSizes,
    iterations: clusters.iterations,
    bestSimilarity: about.bestSimilarity,
    placement: placement && placementSummary(placement),
  }
}

export function placementSummary({ ranks, batch, fullest }: ExpertPlacement): PlacementSummary {
  return { ranks, batch, perCluster: fullest }
}

export function clusterSummaries({ about, calibration: { clusterOf, domain } }: Artifact): ClusterSummary[] {
  const domains = about.sizes.map(() => (domain ? about.domains.map(() => 0) : []))
  domain?.forEach((index, r) => domains[clusterOf[r]!]![index]!++)
  return about.sizes.map((size, k) => ({
    size,
    meanSimilarity: about.clusterSimilarity[k]!,
    domains: domains[k]!,
  }))
}
