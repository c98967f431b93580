/** Live recalibration. Absent if it is off. */
import type { AdaptView } from '../insight/wire.ts'
import type { Metrics } from './metrics.ts'

export interface AdaptSources {
  /** Undefined if live recalibration is off. */
  readonly adapt?: { view(): AdaptView }
}

export function addAdaptGauges(metrics: Metrics, sources: () => AdaptSources): void {
  const single = (name: string, help: string, value: (view: AdaptView) => number | undefined) =>
    metrics.gauge(name, help, [], set => {
      const view = sources().adapt?.view()
      const found = view && value(view)
      if (found !== undefined) set({}, found)
    })
  single(
    'eldr_adapt_rank',
    'Mean rank of recent requests among the calibration requests by their similarity to the nearest centroid: about 0.5 while the artifact fits, near 0 after a drift',
    view => view.drift?.meanRank,
  )
  single('eldr_adapt_drifting', '1 if live requests have drifted away from the artifact, else 0', view =>
    view.drift === undefined ? undefined : view.drift.sinceMs === undefined ? 0 : 1,
  )
  single('eldr_adapt_sample_requests', 'Requests in the live sample', view => view.sample?.requests)
  single(
    'eldr_adapt_predicted_gain',
    'Share of the time of a decode step that the last refit should save; negative if it would cost time',
    view => view.last?.gain,
  )
}
