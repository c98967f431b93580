/** Compares the live requests of the last 15 minutes with those the artifact was fitted from. */
import type { FitWatch } from '../insight/fit-watch.ts'
import type { FitHealth } from '../insight/wire.ts'
import type { Metrics } from './metrics.ts'
import type { RoutingState } from './routing-state.ts'

export interface FitSources {
  readonly fit: Pick<FitWatch, 'health'>
  readonly control: RoutingState
}

/** Gauges over a window, not counters: a counter would mix the current artifact with those before it. */
export function addFitGauges(metrics: Metrics, sources: () => FitSources): void {
  const health = (): FitHealth => {
    const { fit, control } = sources()
    return fit.health(control.loaded?.artifact.about.bestSimilarity ?? [])
  }
  const single = (name: string, help: string, value: () => number) =>
    metrics.gauge(name, help, [], set => set({}, value()))

  metrics.gauge(
    'eldr_fit_similarity',
    'Cosine similarity of requests to their nearest centroid, by quantile: live requests of the last 15 minutes and calibration requests. Live below calibration means that traffic has drifted',
    ['of', 'q'],
    set => {
      for (const { q, calibration, live } of health().quantiles) {
        if (calibration !== undefined) set({ of: 'calibration', q: String(q) }, calibration)
        if (live !== undefined) set({ of: 'live', q: String(q) }, live)
      }
    },
  )
  single(
    'eldr_fit_compared_requests',
    'Requests of the last 15 minutes in the live quantiles of eldr_fit_similarity',
    () => health().compared,
  )
  single(
    'eldr_clusters_misfit',
    '1 if the number of clusters differs from the number of decode workers and the clusters were not refitted, else 0',
    () => (sources().control.view().note === undefined ? 0 : 1),
  )
}
