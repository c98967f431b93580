/** How it stands with other gateways before the same workers. Series are there where replicas are set up, and nowhere else. */
import type { Registry } from '../../../cluster/registry.ts'
import type { Metrics } from './metrics.ts'
import type { ReplicaStatus, Tally } from '../replica-status.ts'

export interface ReplicaSources {
  readonly registry: Pick<Registry, 'views'>
  /** Undefined without replicas. */
  readonly replicas?: { status(): ReplicaStatus; readonly tally: Tally }
}

export function addReplicaGauges(metrics: Metrics, sources: () => ReplicaSources): void {
  type Known = NonNullable<ReplicaSources['replicas']>
  const single = (name: string, help: string, value: (replicas: Known) => number) =>
    metrics.gauge(name, help, [], set => {
      const { replicas } = sources()
      if (replicas !== undefined) set({}, value(replicas))
    })
  const bothWays = (
    name: string,
    help: string,
    value: (tally: Known['tally']) => readonly [number, number],
  ) =>
    metrics.readCounter(name, help, ['direction'], set => {
      const { replicas } = sources()
      if (replicas === undefined) return
      const [received, sent] = value(replicas.tally)
      set({ direction: 'in' }, received)
      set({ direction: 'out' }, sent)
    })
  single('eldr_replica_store_up', '1 when the store that replicas share can be reached, else 0', replicas =>
    replicas.status().store === 'up' ? 1 : 0,
  )
  single(
    'eldr_replicas',
    'Gateways that know of each other’s requests, this one included',
    replicas => replicas.status().replicas,
  )
  single(
    'eldr_replica_view_age_seconds',
    'Since the replica was heard that has been silent longest; quiet ones speak three times in a lease',
    replicas => replicas.status().viewAgeSeconds,
  )
  single(
    'eldr_replica_changes_waiting',
    'Changes by the admin API that the other replicas do not know of yet',
    replicas => replicas.status().waiting,
  )
  single(
    'eldr_replica_behind',
    'Things that another replica changed and that cannot be done here, such as an artifact that cannot be had',
    replicas => replicas.status().behind.length,
  )
  bothWays('eldr_replica_bytes_total', 'Bytes of messages between replicas', tally => [
    tally.bytesIn,
    tally.bytesOut,
  ])
  bothWays('eldr_replica_messages_total', 'Messages between replicas', tally => [
    tally.messagesIn,
    tally.messagesOut,
  ])
  metrics.readCounter(
    'eldr_replica_ignored_total',
    'Passed over: foreign or malformed messages, those of another gateway with our id, and what the store refused',
    ['reason'],
    set => {
      for (const [reason, count] of sources().replicas?.tally.ignoredBy ?? []) set({ reason }, count)
    },
  )
  metrics.gauge(
    'eldr_worker_inflight_elsewhere',
    'Requests of other replicas on a worker, as they last said',
    ['worker', 'leg'],
    set => {
      const { replicas, registry } = sources()
      if (replicas === undefined) return
      for (const { spec, inflightElsewhere } of registry.views(performance.now()))
        set({ worker: spec.id, leg: spec.role }, inflightElsewhere)
    },
  )
}
