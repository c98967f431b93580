/** State of the workers, the routing and the process, read from its owners when metrics are scraped. */
import type { Registry, WorkerView } from '../../../cluster/registry.ts'
import type { Role, WorkerState } from '../../../cluster/worker.ts'
import { VERSION } from '../../../version.ts'
import type { Admission } from '../../http/admission.ts'
import type { Pace } from '../insight/pace.ts'
import type { Metrics } from './metrics.ts'
import type { RoutingState } from './routing-state.ts'
import { addCostGauges } from './gauges-cost.ts'
import { addAdaptGauges, type AdaptSources } from './gauges-adapt.ts'
import { addFitGauges, type FitSources } from './gauges-fit.ts'
import { addReplicaGauges, type ReplicaSources } from './gauges-replicas.ts'
import { addShadowGauges, type ShadowSources } from './gauges-shadow.ts'
import { addTrafficGauges, type TrafficSources } from './gauges-traffic.ts'
import type { LoopDelay } from './loop-delay.ts'

export interface GaugeSources
  extends TrafficSources, FitSources, ReplicaSources, ShadowSources, AdaptSources {
  readonly registry: Pick<Registry, 'views'>
  readonly admission: Pick<Admission, 'running' | 'queued'>
  readonly control: RoutingState
  readonly loopDelay: Pick<LoopDelay, 'p99Seconds'>
  readonly pace: Pick<Pace, 'recent'>
  /** True while the gateway shuts down. */
  draining(): boolean
  readonly experiments: { view(): { readonly running: boolean } }
  /** Undefined without discovery. */
  readonly discovery?: {
    statuses(): readonly { readonly source: string; readonly up: boolean }[]
    lastSuccessSeconds(): Iterable<readonly [source: string, seconds: number]>
  }
}

const STATES: readonly WorkerState[] = ['ready', 'draining', 'unhealthy', 'open', 'unknown']
const LEGS = ['prefill', 'decode'] as const
const BREAKER = { closed: 0, half_open: 1, open: 2 } as const

/** With several processes: the maximum of their delays and the sum of their busy times. */
export function addLoopGauges(metrics: Metrics, loopDelay: () => Pick<LoopDelay, 'p99Seconds'>): void {
  metrics.gauge(
    'eldr_event_loop_delay_p99_seconds',
    'Event loop delay, 99th percentile of the last 15 to 30 seconds',
    [],
    set => set({}, loopDelay().p99Seconds()),
    'max',
  )
  metrics.readCounter(
    'eldr_event_loop_busy_seconds_total',
    'Time the event loop was busy; its rate is the share of a core in use',
    [],
    set => set({}, performance.eventLoopUtilization().active / 1000),
  )
}

/** `sources` is called at each scrape. */
export function addGauges(metrics: Metrics, sources: () => GaugeSources): void {
  const workers = (name: string, help: string, value: (view: WorkerView) => number) =>
    metrics.gauge(name, help, ['worker', 'leg'], set => {
      for (const view of views()) set({ worker: view.spec.id, leg: view.spec.role }, value(view))
    })
  const single = (name: string, help: string, value: () => number) =>
    metrics.gauge(name, help, [], set => set({}, value()))
  const views = () => sources().registry.views(performance.now())
  const ready = (leg: Role) =>
    views().filter(({ spec, state }) => spec.role === leg && state === 'ready').length
  const startedMs = performance.now()

  workers('eldr_worker_inflight', 'Requests in flight on a worker', view => view.inflight)
  workers(
    'eldr_worker_inflight_tokens',
    'Prompt tokens of the requests in flight on a worker',
    view => view.tokens,
  )
  workers(
    'eldr_worker_breaker_state',
    'Circuit breaker of a worker: 0 closed, 1 half-open, 2 open',
    view => BREAKER[view.breaker],
  )
  metrics.gauge(
    'eldr_worker_state',
    `State of a worker: 1 for the current state, 0 for the others (${STATES.join(', ')})`,
    ['worker', 'leg', 'state'],
    set => {
      for (const { spec, state } of views())
        for (const each of STATES)
          set({ worker: spec.id, leg: spec.role, state: each }, each === state ? 1 : 0)
    },
  )
  metrics.gauge('eldr_workers', 'Registered workers, excluding those being removed', ['leg'], set => {
    for (const leg of LEGS)
      set({ leg }, views().filter(({ spec, leaving }) => spec.role === leg && !leaving).length)
  })
  metrics.gauge('eldr_workers_ready', 'Workers that accept requests now', ['leg'], set => {
    for (const leg of LEGS) set({ leg }, ready(leg))
  })
  single(
    'eldr_ready',
    '1 if /ready returns 200: a worker of each leg accepts requests and the gateway is not shutting down; else 0',
    () => (!sources().draining() && ready('prefill') > 0 && ready('decode') > 0 ? 1 : 0),
  )
  single(
    'eldr_experiment_running',
    '1 while an experiment switches the policy and other changes of routing are refused; else 0',
    () => (sources().experiments.view().running ? 1 : 0),
  )
  metrics.gauge(
    'eldr_worker_recent_seconds',
    'Mean time between tokens (decode worker) or mean prefill time (prefill worker) over the last 10 seconds; absent without requests in that time',
    ['worker', 'leg'],
    set => {
      for (const { spec } of views()) {
        const { recentMs } = sources().pace.recent(spec.id)
        if (recentMs !== undefined) set({ worker: spec.id, leg: spec.role }, recentMs / 1000)
      }
    },
  )
  single('eldr_running_requests', 'Admitted requests that have not ended', () => sources().admission.running)
  single('eldr_queue_length', 'Requests waiting for admission', () => sources().admission.queued)
  metrics.gauge(
    'eldr_policy_info',
    'Always 1; labels name the current policies',
    ['policy', 'prefill_policy'],
    set => {
      const { policy, prefillPolicy } = sources().control.view()
      set({ policy, prefill_policy: prefillPolicy }, 1)
    },
  )
  metrics.gauge(
    'eldr_artifact_info',
    'Always 1; labels hold the SHA-256 of the artifact file and its model. Absent without an artifact',
    ['sha256', 'model'],
    set => {
      const { artifact } = sources().control.view()
      if (artifact !== undefined) set({ sha256: artifact.sha256, model: artifact.model.slice(0, 100) }, 1)
    },
  )
  single(
    'eldr_artifact_clusters',
    'Clusters in use, after a refit if there was one; 0 without an artifact',
    () => sources().control.view().artifact?.clusters ?? 0,
  )
  metrics.gauge(
    'eldr_discovery_up',
    '1 if the last lookup of a discovery source succeeded, else 0',
    ['source'],
    set => {
      for (const { source, up } of sources().discovery?.statuses() ?? []) set({ source }, up ? 1 : 0)
    },
  )
  metrics.gauge(
    'eldr_discovery_last_success_seconds',
    'Unix time of the last successful lookup of a discovery source',
    ['source'],
    set => {
      for (const [source, seconds] of sources().discovery?.lastSuccessSeconds() ?? [])
        set({ source }, seconds)
    },
  )
  addLoopGauges(metrics, () => sources().loopDelay)
  single(
    'eldr_uptime_seconds',
    'Time since the gateway started',
    () => (performance.now() - startedMs) / 1000,
  )
  metrics.gauge(
    'eldr_build_info',
    'Always 1; labels hold the versions of ELDR and Node',
    ['version', 'node'],
    set => set({ version: VERSION, node: process.version }, 1),
  )
  addTrafficGauges(metrics, sources)
  addFitGauges(metrics, sources)
  addCostGauges(metrics, sources)
  addReplicaGauges(metrics, sources)
  addShadowGauges(metrics, sources)
  addAdaptGauges(metrics, sources)
}
