/** How much goes through the gateway and how full it is: tickets, limits, connections, bytes. Nothing of it is counted by requests. */
import type { WorkerView } from '../../../cluster/registry.ts'
import type { LoadTracker } from '../../../cluster/tickets.ts'
import { addressOf } from '../../config/origin.ts'
import type { AdmissionLimits } from '../../http/admission.ts'
import type { ClientConnections } from '../../http/client-connections.ts'
import type { Metrics } from './metrics.ts'
import type { WorkerTraffic } from '../../upstream/pool.ts'
import type { Upstreams } from '../../upstream/upstreams.ts'

export interface ConnectionSources {
  /** Workers, by their specs alone. */
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
    'Tickets that are out: requests on workers, those on workers that are gone included',
    ['leg'],
    set => {
      for (const leg of ['prefill', 'decode'] as const) set({ leg }, sources().tracker.total(leg).inflight)
    },
  )
  single('eldr_oldest_ticket_seconds', 'Age of the oldest ticket; 0 when none is out', () => {
    const { oldestMs } = sources().tracker
    return oldestMs === undefined ? 0 : (performance.now() - oldestMs) / 1000
  })
  metrics.readCounter(
    'eldr_ticket_double_releases_total',
    'Tickets that were released twice: must stay 0',
    [],
    set => set({}, sources().tracker.doubleReleases),
  )
  single(
    'eldr_running_requests_limit',
    'How many requests may be let in at once (limits.maxConcurrentRequests); 0 is no limit',
    () => sources().limits.maxConcurrentRequests,
  )
  single('eldr_queue_limit', 'How many may wait (limits.queueSize)', () => sources().limits.queueSize)
  single(
    'eldr_retry_budget',
    'Retries that may be made at this moment (retries.budgetShare of requests, at most 20)',
    () => sources().budget.left,
  )
  addConnectionGauges(metrics, sources)
}

/** Of whichever process has the connections. */
export function addConnectionGauges(metrics: Metrics, sources: () => ConnectionSources): void {
  /** For each worker that was asked something. Ranks of a server share its connections: they are told of once, under its address. */
  const ofWorkers =
    (tell: (set: SetValue, labels: { worker: string; leg: string }, traffic: WorkerTraffic) => void) =>
    (set: SetValue) => {
      const { registry, upstreams } = sources()
      const told = new Set<string>()
      for (const { spec } of registry.views(performance.now())) {
        const traffic = upstreams.trafficOf(spec.url)
        if (traffic === undefined || (spec.dpRank !== undefined && told.has(spec.url))) continue
        told.add(spec.url)
        tell(
          set,
          { worker: spec.dpRank === undefined ? spec.id : addressOf(spec.url), leg: spec.role },
          traffic,
        )
      }
    }

  metrics.gauge('eldr_client_connections', 'Connections of clients that are open', [], set =>
    set({}, sources().clients.traffic().open),
  )
  metrics.readCounter('eldr_client_connections_total', 'Connections of clients that were accepted', [], set =>
    set({}, sources().clients.traffic().accepted),
  )
  metrics.readCounter(
    'eldr_client_bytes_total',
    'Bytes from clients (received) and to them (sent), HTTP’s own included',
    ['direction'],
    set => {
      const { receivedBytes, sentBytes } = sources().clients.traffic()
      set({ direction: 'received' }, receivedBytes)
      set({ direction: 'sent' }, sentBytes)
    },
  )
  metrics.gauge(
    'eldr_worker_connections',
    'Connections to a worker: busy with a request (health checks too), or idle. Data-parallel ranks share those of their server, under its address',
    ['worker', 'leg', 'state'],
    ofWorkers((set, labels, { busy, idle }) => {
      set({ ...labels, state: 'busy' }, busy)
      set({ ...labels, state: 'idle' }, idle)
    }),
  )
  metrics.readCounter(
    'eldr_worker_connections_total',
    'Connections to a worker that were opened',
    ['worker', 'leg'],
    ofWorkers((set, labels, { opened }) => set(labels, opened)),
  )
  metrics.readCounter(
    'eldr_worker_bytes_total',
    'Bytes from a worker (received) and to it (sent), HTTP’s own included',
    ['worker', 'leg', 'direction'],
    ofWorkers((set, labels, { receivedBytes, sentBytes }) => {
      set({ ...labels, direction: 'received' }, receivedBytes)
      set({ ...labels, direction: 'sent' }, sentBytes)
    }),
  )
}
