/** The registry's views of its workers, and the types of its methods. */
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

/** `unchanged`: it was registered already. The last two are conflicts with another worker. */
export type AddOutcome = 'added' | 'unchanged' | 'id_taken' | 'cluster_taken'

/**
 * Who may take a worker out of rotation. It is in rotation if no holder is left, so that one holder cannot
 * undo another's decision.
 */
export type Holder = 'admin' | 'discovery'

/** A worker that may be picked now. For decode workers `worker` is the row of their centroid. */
export interface WorkerCandidate {
  readonly worker: number
  readonly id: string
  /** Requests of this gateway and, if they share their loads, of other gateways. */
  readonly inflight: number
  /** Prompt tokens of these requests. */
  readonly tokens: number
}

export interface WorkerView {
  readonly spec: WorkerSpec
  readonly index: number
  readonly state: WorkerState
  readonly breaker: BreakerState
  /** Dispatched by this gateway. */
  readonly inflight: number
  readonly tokens: number
  /** Dispatched by other gateways, as last reported; 0 if none reports. */
  readonly inflightElsewhere: number
  /** Removed, with requests still running. */
  readonly leaving: boolean
}
