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
    'Learnt cost of a decode step, part of an empty batch. Absent until union has had 16 streams of 8 tokens or more, and one on this worker; unchanged while another policy is in force. The proportion of the parts is one for all workers and stays near that of the profile, so only their sum over a step is a measured time',
    cost => MICROSECOND * cost.base,
  )
  gauge(
    'eldr_step_cost_per_expert_seconds',
    'Learnt cost of a decode step per active expert, summed over all layers. Mostly the proportion of the profile, at the speed of the worker',
    cost => MICROSECOND * cost.perExpert,
  )
  gauge(
    'eldr_step_cost_per_request_seconds',
    'Learnt cost of a decode step per request in the batch, including attention to a context of usual length. Mostly the proportion of the profile, at the speed of the worker',
    cost => MICROSECOND * cost.perRequest,
  )
  gauge(
    'eldr_step_cost_speed_ratio',
    'Time of a decode step of the worker over that of the cluster, for the same batch: 1.5 is a worker that takes 1.5 times as long. Follows about the last 64 streams of the worker. Limited to about 0.93 to 1.99, and small differences are shrunk toward 1. The cluster is the median of the workers: if half of them or more are slow, their slowness is underestimated',
    cost => cost.timeRatio,
  )
  gauge(
    'eldr_step_cost_streams',
    'Streams of the worker under union that its speed was learnt from. Starts again when the worker is registered again, or has had no stream for long',
    cost => cost.streams,
  )
}
