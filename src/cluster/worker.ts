export type Role = 'prefill' | 'decode'

/** Who told of a worker. What one of them told, no other takes away. */
export type WorkerSource = 'config' | 'admin' | 'file' | 'dns' | 'kubernetes'

/** A worker as the gateway is told of it. */
export interface WorkerSpec {
  /** Unique over both roles; labels of metrics and the admin API name it, clients never see its address. */
  readonly id: string
  readonly role: Role
  /** Origin, such as http://10.0.0.7:8000, without a path. */
  readonly url: string
  /** Decode: index of its centroid. */
  readonly cluster?: number
  readonly source?: WorkerSource
}

/** Why a worker takes no new requests; `ready` is the only state in which it does. */
export type WorkerState = 'ready' | 'draining' | 'unhealthy' | 'open' | 'unknown'
