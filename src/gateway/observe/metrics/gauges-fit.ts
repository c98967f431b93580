/** Whether the artifact still fits: what live requests look like beside those it was fitted from, over the last quarter of an hour. */
import type { FitWatch } from '../insight/fit-watch.ts'
import type { FitHealth } from '../insight/wire.ts'
import type { Metrics } from './metrics.ts'
import type { RoutingState } from './routing-state.ts'

export interface FitSources {
  readonly fit: Pick<FitWatch, 'health'>
  readonly control: RoutingState
}

/** A window: a counter cannot say what the last minutes were like under the artifact of now, which may be a minute old. */
export function addFitGauges(metrics: Metrics, sources: () => FitSources): void {
  const health = (): FitHealth => {
    const { fit, control } = sources()
    return fit.health(control.loaded?.artifact.about.bestSimilarity ?? [])
  }
  const single = (name: string, help: string, value: () => number) =>
    metrics.gauge(name, help, [], set => set({}, value()))

  metrics.gauge(
    'eldr_fit_similarity',
    'Cosine of requests to their nearest centroid, by quantile: of live ones over the last 15 minutes, and of the calibration’s. Live below calibration: traffic has drifted',
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
    'Requests of the last 15 minutes that eldr_fit_similarity is made of',
    () => health().compared,
  )
  single(
    'eldr_clusters_misfit',
    '1 when the artifact’s clusters are not as many as the decode workers, and were not fitted anew',
    () => (sources().control.view().note === undefined ? 0 : 1),
  )
}
