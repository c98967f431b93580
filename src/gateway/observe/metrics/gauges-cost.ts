/** The cost of a decode step that the policy `union` has learnt, by decode worker. */
import type { Registry } from '../../../cluster/registry.ts'
import type { Metrics } from './metrics.ts'
import type { RoutingState } from './routing-state.ts'

export interface CostSources {
  readonly registry: Pick<Registry, 'views'>
  readonly control: Pick<RoutingState, 'stepCostOf'>
}

type Learnt = NonNullable<ReturnType<RoutingState['stepCostOf']>>

const MICROSECOND = 1e-6

export function addCostGauges(metrics: Metrics, sources: () => CostSources): void {
  const gauge = (name: string, help: string, value: (cost: Learnt) => number) =>
    metrics.gauge(name, help, ['worker'], set => {
      const { registry, control } = sources()
      for (const { spec, index } of registry.views(performance.now())) {
        const cost = spec.role === 'decode' ? control.stepCostOf(index) : undefined
        if (cost !== undefined) set({ worker: spec.id }, value(cost))
      }
    })
  gauge(
    'eldr_step_cost_base_seconds',
    'Learnt cost of a decode step, part of an empty batch. Absent until union has had 16 streams of 8 tokens or more, and one on this worker',
    cost => MICROSECOND * cost.base,
  )
  gauge(
    'eldr_step_cost_per_expert_seconds',
    'Learnt cost of a decode step per active expert, summed over all layers',
    cost => MICROSECOND * cost.perExpert,
  )
  gauge(
    'eldr_step_cost_per_request_seconds',
    'Learnt cost of a decode step per request in the batch, including attention to a context of usual length',
    cost => MICROSECOND * cost.perRequest,
  )
  gauge(
    'eldr_step_cost_streams',
    'Streams of the worker that its learnt cost is from, since it was registered',
    cost => cost.streams,
  )
}
