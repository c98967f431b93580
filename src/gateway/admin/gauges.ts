/** What is, as opposed to what has happened: read from where it lives when somebody asks for the metrics. */
import type { Registry, WorkerView } from '../../cluster/registry.ts'
import type { WorkerState } from '../../cluster/worker.ts'
import { VERSION } from '../../version.ts'
import type { Admission } from '../admission.ts'
import type { Metrics } from '../metrics.ts'
import type { RoutingControl } from '../routing/routing-control.ts'
import type { LoopDelay } from './loop-delay.ts'

export interface GaugeSources {
  readonly registry: Pick<Registry, 'views'>
  readonly admission: Pick<Admission, 'running' | 'queued'>
  readonly control: Pick<RoutingControl, 'view'>
  readonly loopDelay: Pick<LoopDelay, 'p99Seconds'>
}

const STATES: readonly WorkerState[] = ['ready', 'draining', 'unhealthy', 'open', 'unknown']
const BREAKER = { closed: 0, half_open: 1, open: 2 } as const

/** `sources` are asked for when the metrics are. */
export function addGauges(metrics: Metrics, sources: () => GaugeSources): void {
  const workers = (name: string, help: string, value: (view: WorkerView) => number) =>
    metrics.gauge(name, help, ['worker', 'leg'], set => {
      for (const view of views()) set({ worker: view.spec.id, leg: view.spec.role }, value(view))
    })
  const single = (name: string, help: string, value: () => number) => metrics.gauge(name, help, [], set => set({}, value()))
  const views = () => sources().registry.views(performance.now())
  const startedMs = performance.now()

  workers('eldr_worker_inflight', 'Requests on a worker', view => view.inflight)
  workers('eldr_worker_inflight_tokens', 'Prompt tokens of the requests on a worker', view => view.tokens)
  workers('eldr_worker_breaker_state', 'Breaker of a worker: 0 closed, 1 half-open, 2 open', view => BREAKER[view.breaker])
  metrics.gauge(
    'eldr_worker_state',
    `State of a worker: 1 for the one it is in, 0 for the others (${STATES.join(', ')})`,
    ['worker', 'leg', 'state'],
    set => {
      for (const { spec, state } of views())
        for (const each of STATES) set({ worker: spec.id, leg: spec.role, state: each }, each === state ? 1 : 0)
    },
  )
  metrics.gauge('eldr_workers', 'Workers that are registered, those that are leaving aside', ['leg'], set => {
    for (const leg of ['prefill', 'decode'] as const)
      set({ leg }, views().filter(({ spec, leaving }) => spec.role === leg && !leaving).length)
  })
  single('eldr_running_requests', 'Requests that have been let in and have not ended', () => sources().admission.running)
  single('eldr_queue_length', 'Requests that wait to be let in', () => sources().admission.queued)
  metrics.gauge('eldr_policy_info', '1, with the policies in force', ['policy', 'prefill_policy'], set => {
    const { policy, prefillPolicy } = sources().control.view()
    set({ policy, prefill_policy: prefillPolicy }, 1)
  })
  metrics.gauge(
    'eldr_artifact_info',
    '1, with the hash of the artifact’s file and its model; absent without one',
    ['sha256', 'model'],
    set => {
      const { artifact } = sources().control.view()
      if (artifact !== undefined) set({ sha256: artifact.sha256, model: artifact.model.slice(0, 100) }, 1)
    },
  )
  single('eldr_artifact_clusters', 'Clusters that decisions go by, after a re-fit if there was one; 0 without an artifact', () => sources().control.view().artifact?.clusters ?? 0) // prettier-ignore
  single('eldr_event_loop_delay_p99_seconds', 'How late the event loop is, 99th percentile of the last 15 to 30 seconds', () => sources().loopDelay.p99Seconds()) // prettier-ignore
  single('eldr_uptime_seconds', 'Since the gateway was started', () => (performance.now() - startedMs) / 1000)
  metrics.gauge('eldr_build_info', '1, with the release and the version of Node', ['version', 'node'], set =>
    set({ version: VERSION, node: process.version }, 1),
  )
}
