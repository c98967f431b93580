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
  /** Which of the engines behind the URL it is, where a server has several and each is a worker of its own. */
  readonly dpRank?: number
  /** Decode: index of its centroid. */
  readonly cluster?: number
  readonly source?: WorkerSource
}

type Place = Pick<WorkerSpec, 'url' | 'dpRank'>

/** One engine cannot be two workers; and a worker without a rank is all engines behind its URL. */
export function isSamePlace(a: Place, b: Place): boolean {
  return a.url === b.url && (a.dpRank === b.dpRank || a.dpRank === undefined || b.dpRank === undefined)
}

/** As it is written: the URL, with @RANK behind it where there is one. */
export function placeText({ url, dpRank }: Place): string {
  return dpRank === undefined ? url : `${url}@${dpRank}`
}

/** Why a worker takes no new requests; `ready` is the only state in which it does. */
export type WorkerState = 'ready' | 'draining' | 'unhealthy' | 'open' | 'unknown'
