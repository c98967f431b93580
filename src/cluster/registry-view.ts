/** What the registry tells of its workers, and who asks what of it. */
import type { BreakerState } from './breaker.ts'
import type { WorkerSpec, WorkerState } from './worker.ts'

export type RegistryEventKind =
  | 'added'
  | 'removed'
  | 'forgotten'
  | 'drained'
  | 'undrained'
  | 'healthy'
  | 'unhealthy'
  | `breaker_${BreakerState}`

export interface RegistryEvent {
  readonly kind: RegistryEventKind
  readonly worker: WorkerSpec
  readonly index: number
}

/** `unchanged`: it was there already. The last two changed nothing because of another worker. */
export type AddOutcome = 'added' | 'unchanged' | 'id_taken' | 'cluster_taken'

/** Who may take a worker out of rotation. It is in it when none of them holds it, so that nobody puts back what another took out. */
export type Holder = 'admin' | 'discovery'

/** A worker that may be picked now. For decode workers `worker` is the row of their centroid. */
export interface WorkerCandidate {
  readonly worker: number
  readonly id: string
  /** Of this gateway and, where they tell, of others. */
  readonly inflight: number
}

export interface WorkerView {
  readonly spec: WorkerSpec
  readonly index: number
  readonly state: WorkerState
  readonly breaker: BreakerState
  /** Dispatched by this gateway. */
  readonly inflight: number
  readonly tokens: number
  /** Dispatched by other gateways, as they last told; 0 where none tells. */
  readonly inflightElsewhere: number
  /** Removed, with requests that still run. */
  readonly leaving: boolean
}
