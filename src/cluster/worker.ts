export type Role = 'prefill' | 'decode'

/** Who announced a worker. Only the same source can remove it. */
export type WorkerSource = 'config' | 'admin' | 'file' | 'dns' | 'kubernetes'

/** A worker as announced to the gateway. */
export interface WorkerSpec {
  /** Unique over both roles; used in metric labels and the admin API. Clients never see its address. */
  readonly id: string
  readonly role: Role
  /** Origin, such as http://10.0.0.7:8000, without a path. */
  readonly url: string
  /** Index of the engine behind the URL, if a server has several and each is a separate worker. */
  readonly dpRank?: number
  /** Decode: index of its centroid. */
  readonly cluster?: number
  readonly source?: WorkerSource
}

type Place = Pick<WorkerSpec, 'url' | 'dpRank'>

/** One engine cannot be two workers, and a worker without a rank is all engines behind its URL. */
export function isSamePlace(a: Place, b: Place): boolean {
  return a.url === b.url && (a.dpRank === b.dpRank || a.dpRank === undefined || b.dpRank === undefined)
}

/** Written form: the URL, followed by @RANK if there is one. */
export function placeText({ url, dpRank }: Place): string {
  return dpRank === undefined ? url : `${url}@${dpRank}`
}

/** Why a worker takes no new requests; it takes them only when `ready`. */
export type WorkerState = 'ready' | 'draining' | 'unhealthy' | 'open' | 'unknown'
