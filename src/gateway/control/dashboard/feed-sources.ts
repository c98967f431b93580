/** Collects the data of pulses. */
import type { Registry } from '../../../cluster/registry.ts'
import type { Admission } from '../../http/admission.ts'
import type { RoutingControl } from '../../routing/routing-control.ts'
import type { Router } from '../../routing/router.ts'
import type { Insight } from '../../observe/insight/insight.ts'
import type { FeedSources } from './live-feed.ts'
import { SLICE_MS } from '../../observe/insight/pace.ts'
import type { SignaturePlane } from './signature-plane.ts'
import type { LiveStepCost, LiveWorker } from '../../observe/insight/wire.ts'

export interface FeedParts {
  readonly registry: Registry
  readonly admission: Pick<Admission, 'running' | 'queued'>
  readonly insight: Insight
  readonly plane: SignaturePlane
  control(): RoutingControl
  router(): Router
}

export function feedSources({
  registry,
  admission,
  insight,
  plane,
  control,
  router,
}: FeedParts): FeedSources {
  const { pace, fit, stories } = insight
  return {
    routing: () => control().view(),
    workers: () =>
      registry
        .views(performance.now())
        .map(
          ({ spec: { id, role, dpRank }, index, state, breaker, inflight, tokens, leaving }): LiveWorker => {
            const cluster = role === 'decode' ? control().clusterOf(index) : undefined
            const shown = {
              id,
              role,
              dpRank,
              state: leaving ? 'leaving' : state,
              breaker,
              inflight,
              tokens,
              ...pace.recent(id),
            }
            const stepCost = role === 'decode' ? liveCost(control().stepCostOf(index)) : undefined
            return { ...shown, cluster, stepCost }
          },
        ),
    load: () => ({ running: admission.running, queued: admission.queued }),
    health: () => fit.health(control().loaded?.artifact.about.bestSimilarity ?? []),
    pace: (nowMs, ms) => pace.points(nowMs, ms),
    sliceMs: SLICE_MS,
    decisions: limit => router().decisions(limit),
    place: routable => plane.place(routable),
    shown: record => stories.markShown(record),
  }
}

function liveCost(cost: ReturnType<RoutingControl['stepCostOf']>): LiveStepCost | undefined {
  return (
    cost && {
      baseMs: cost.base / 1000,
      perExpertMs: cost.perExpert / 1000,
      perRequestMs: cost.perRequest / 1000,
      streams: cost.streams,
    }
  )
}
