/** Load and traffic of the gateway: tickets, limits, connections, bytes. Read when metrics are scraped. */
import type { WorkerView } from '../../../cluster/registry.ts'
import type { LoadTracker } from '../../../cluster/tickets.ts'
import { addressOf } from '../../config/origin.ts'
import type { AdmissionLimits } from '../../http/admission.ts'
import type { ClientConnections } from '../../http/client-connections.ts'
import type { Metrics } from './metrics.ts'
import type { WorkerTraffic } from '../../upstream/pool.ts'
import type { Upstreams } from '../../upstream/upstreams.ts'

export interface ConnectionSources {
  readonly registry: { views(nowMs: number): readonly Pick<WorkerView, 'spec'>[] }
  readonly clients: Pick<ClientConnections, 'traffic'>
  readonly upstreams: Pick<Upstreams, 'trafficOf'>
}

export interface TrafficSources extends ConnectionSources {
  readonly tracker: Pick<LoadTracker, 'total' | 'doubleReleases' | 'oldestMs'>
  readonly limits: AdmissionLimits
  /** Retries available now. */
  readonly budget: { readonly left: number }
}

type SetValue = (labels: Record<string, string>, value: number) => void

export function addTrafficGauges(metrics: Metrics, sources: () => TrafficSources): void {
  const single = (name: string, help: string, value: () => number) =>
    metrics.gauge(name, help, [], set => set({}, value()))
  metrics.gauge(
    'eldr_tickets',
    'Open tickets: requests on workers, including workers that were removed',
    ['leg'],
    set => {
      for (const leg of ['prefill', 'decode'] as const) set({ leg }, sources().tracker.total(leg).inflight)
    },
  )
  single('eldr_oldest_ticket_seconds', 'Age of the oldest open ticket; 0 if none is open', () => {
    const { oldestMs } = sources().tracker
    return oldestMs === undefined ? 0 : (performance.now() - oldestMs) / 1000
  })
  metrics.readCounter(
    'eldr_ticket_double_releases_total',
    'Tickets released twice; more than 0 is a bug',
    [],
    set => set({}, sources().tracker.doubleReleases),
  )
  single(
    'eldr_running_requests_limit',
    'Max requests admitted at once (limits.maxConcurrentRequests); 0 means no limit',
    () => sources().limits.maxConcurrentRequests,
  )
  single('eldr_queue_limit', 'Max requests in the queue (limits.queueSize)', () => sources().limits.queueSize)
  single(
    'eldr_retry_budget',
    'Retries available now; each request adds retries.budgetShare, up to 20',
    () => sources().budget.left,
  )
  addConnectionGauges(metrics, sources)
}

/** Also for relays, which have connections of their own. */
export function addConnectionGauges(metrics: Metrics, sources: () => ConnectionSources): void {
  /**
   * Data-parallel ranks share the connections of their server, which are reported once, under its address.
   */
  const perWorker =
    (report: (set: SetValue, labels: { worker: string; leg: string }, traffic: WorkerTraffic) => void) =>
    (set: SetValue) => {
      const { registry, upstreams } = sources()
      const reported = new Set<string>()
      for (const { spec } of registry.views(performance.now())) {
        const traffic = upstreams.trafficOf(spec.url)
        if (traffic === undefined || (spec.dpRank !== undefined && reported.has(spec.url))) continue
        reported.add(spec.url)
        report(
          set,
          { worker: spec.dpRank === undefined ? spec.id : addressOf(spec.url), leg: spec.role },
          traffic,
        )
      }
    }

  metrics.gauge('eldr_client_connections', 'Open client connections', [], set =>
    set({}, sources().clients.traffic().open),
  )
  metrics.readCounter('eldr_client_connections_total', 'Accepted client connections', [], set =>
    set({}, sources().clients.traffic().accepted),
  )
  metrics.readCounter(
    'eldr_client_bytes_total',
    'Bytes received from clients and sent to them, including HTTP headers and framing',
    ['direction'],
    set => {
      const { receivedBytes, sentBytes } = sources().clients.traffic()
      set({ direction: 'received' }, receivedBytes)
      set({ direction: 'sent' }, sentBytes)
    },
  )
  metrics.gauge(
    'eldr_worker_connections',
    'Connections to a worker: busy with a request or health check, or idle. Data-parallel ranks share the connections of their server, under its address',
    ['worker', 'leg', 'state'],
    perWorker((set, labels, { busy, idle }) => {
      set({ ...labels, state: 'busy' }, busy)
      set({ ...labels, state: 'idle' }, idle)
    }),
  )
  metrics.readCounter(
    'eldr_worker_connections_total',
    'Connections opened to a worker',
    ['worker', 'leg'],
    perWorker((set, labels, { opened }) => set(labels, opened)),
  )
  metrics.readCounter(
    'eldr_worker_bytes_total',
    'Bytes received from a worker and sent to it, including HTTP headers and framing',
    ['worker', 'leg', 'direction'],
    perWorker((set, labels, { receivedBytes, sentBytes }) => {
      set({ ...labels, direction: 'received' }, receivedBytes)
      set({ ...labels, direction: 'sent' }, sentBytes)
    }),
  )
}
