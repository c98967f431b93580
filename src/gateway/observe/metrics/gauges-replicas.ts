/** Metrics of replicas, gateways that share the same workers. Absent without replicas. */
import type { Registry } from '../../../cluster/registry.ts'
import type { Metrics } from './metrics.ts'
import type { MessageCounts, ReplicaStatus } from '../replica-status.ts'

export interface ReplicaSources {
  readonly registry: Pick<Registry, 'views'>
  /** Undefined without replicas. */
  readonly replicas?: { status(): ReplicaStatus; readonly messageCounts: MessageCounts }
}

export function addReplicaGauges(metrics: Metrics, sources: () => ReplicaSources): void {
  type Replicas = NonNullable<ReplicaSources['replicas']>
  const single = (name: string, help: string, value: (replicas: Replicas) => number) =>
    metrics.gauge(name, help, [], set => {
      const { replicas } = sources()
      if (replicas !== undefined) set({}, value(replicas))
    })
  const inAndOut = (
    name: string,
    help: string,
    value: (counts: MessageCounts) => readonly [number, number],
  ) =>
    metrics.readCounter(name, help, ['direction'], set => {
      const { replicas } = sources()
      if (replicas === undefined) return
      const [received, sent] = value(replicas.messageCounts)
      set({ direction: 'in' }, received)
      set({ direction: 'out' }, sent)
    })
  single('eldr_replica_store_up', '1 if the store shared by the replicas is reachable, else 0', replicas =>
    replicas.status().store === 'up' ? 1 : 0,
  )
  single(
    'eldr_replicas',
    'Gateways that share their load with each other, including this one',
    replicas => replicas.status().replicas,
  )
  single(
    'eldr_replica_view_age_seconds',
    'Time since the last message of the replica that has been silent longest. An idle replica sends three messages per lease',
    replicas => replicas.status().viewAgeSeconds,
  )
  single(
    'eldr_replica_changes_waiting',
    'Admin API changes not yet published to the other replicas',
    replicas => replicas.status().waiting,
  )
  single(
    'eldr_replica_behind',
    'Changes of other replicas that this gateway could not apply, such as an artifact it could not load',
    replicas => replicas.status().behind.length,
  )
  inAndOut('eldr_replica_bytes_total', 'Bytes of messages exchanged with other replicas', counts => [
    counts.bytesIn,
    counts.bytesOut,
  ])
  inAndOut('eldr_replica_messages_total', 'Messages exchanged with other replicas', counts => [
    counts.messagesIn,
    counts.messagesOut,
  ])
  metrics.readCounter(
    'eldr_replica_ignored_total',
    'Ignored messages and refused store commands, by reason: foreign, malformed, same_id (another gateway uses this id), too_many replicas, refused by the store',
    ['reason'],
    set => {
      for (const [reason, count] of sources().replicas?.messageCounts.ignoredBy ?? []) set({ reason }, count)
    },
  )
  metrics.gauge(
    'eldr_worker_inflight_elsewhere',
    'Requests of other replicas on a worker, as last reported',
    ['worker', 'leg'],
    set => {
      const { replicas, registry } = sources()
      if (replicas === undefined) return
      for (const { spec, inflightElsewhere } of registry.views(performance.now()))
        set({ worker: spec.id, leg: spec.role }, inflightElsewhere)
    },
  )
}
