/**
 * Drift scenarios: how the traffic or the cluster differs from what the artifact was fitted for. Each is a
 * plain description; `drift-runs.ts` turns it into runs of the simulator, `artifacts.ts` into artifacts.
 */

/**
 * Which trace the artifact is fitted on. own: the calibration trace of the traffic; foreign: of other
 * traffic; unseen: the own one without a domain; shuffled: the own one of a model whose experts have other
 * numbers; noise: requests that have nothing in common; centroids: the own one with random centroids; random:
 * the own one with random centroids, signatures and decode patterns.
 */
export const ARTIFACT_KINDS = [
  'own',
  'foreign',
  'unseen',
  'shuffled',
  'noise',
  'centroids',
  'random',
] as const
export type ArtifactKind = (typeof ARTIFACT_KINDS)[number]

export interface Scenario {
  readonly name: string
  /** What differs, for tables and pages. */
  readonly about: string
  readonly artifact: ArtifactKind
  /** Clusters of the artifact for each decode worker, without a refit (default: 1). */
  readonly clustersPerWorker?: number
  /** One domain alone for this long, then the mix of the trace again. */
  readonly burstSeconds?: number
  /** Length of a day in which each domain has its own peak. */
  readonly daySeconds?: number
  /** One decode worker takes this many times as long for a step. */
  readonly slowness?: number
}

export const SCENARIOS: readonly Scenario[] = [
  { name: 'matched', about: 'no drift, for comparison', artifact: 'own' },
  { name: 'swapped', about: 'artifact of the other mix', artifact: 'foreign' },
  {
    name: 'burst',
    about: 'one domain alone for 60 s, then the mix again',
    artifact: 'own',
    burstSeconds: 60,
  },
  { name: 'day', about: 'mix rotates over a day of 120 s', artifact: 'own', daySeconds: 120 },
  { name: 'unseen', about: 'one domain left out of the fit', artifact: 'unseen' },
  {
    name: 'scaled_out',
    about: 'artifact of ¾ as many workers, before a refit',
    artifact: 'own',
    clustersPerWorker: 0.75,
  },
  {
    name: 'scaled_in',
    about: 'artifact of 1½ times as many workers, before a refit',
    artifact: 'own',
    clustersPerWorker: 1.5,
  },
  { name: 'shuffled', about: 'expert numbers permuted per layer after the fit', artifact: 'shuffled' },
  { name: 'noise', about: 'artifact of random experts', artifact: 'noise' },
  { name: 'slow', about: 'one decode worker 1.5 times slower', artifact: 'own', slowness: 1.5 },
]

/** True if the scenario needs to know the domain of each request. */
export function needsDomains({ artifact, burstSeconds, daySeconds }: Scenario): boolean {
  return artifact === 'unseen' || burstSeconds !== undefined || daySeconds !== undefined
}
