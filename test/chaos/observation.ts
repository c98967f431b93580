/**
 * What the checker gets to see: requests as their client saw them, faults as the adversary made them. Times
 * are milliseconds since 1970 by the monotonic clock of one machine, so that processes can be compared.
 */
export const nowMs = (): number => performance.timeOrigin + performance.now()

/** A request whose response is known beforehand. */
export interface KnownAnswer {
  /** For people: prompt and sampling. */
  readonly name: string
  readonly path: '/v1/completions' | '/v1/chat/completions'
  /** Without the fields that say how the response is delivered. */
  readonly body: Readonly<Record<string, unknown>>
  readonly ids: readonly number[]
  readonly text: string
  readonly finish: string
  readonly promptTokens: number
}

/**
 * ended: the response was received to its end; cut: the connection broke after the head; refused: it broke
 * before; hung: not over when the client's patience was; left: the client left on purpose.
 */
export type End = 'ended' | 'cut' | 'refused' | 'hung' | 'left'

export interface Observation {
  readonly id: number
  /** Index of the known answer. */
  readonly ask: number
  readonly gateway: string
  readonly stream: boolean
  readonly startMs: number
  readonly endMs: number
  readonly end: End
  /** Error of the connection. */
  readonly reason?: string
  /** Time of the first event that has text or tokens. */
  readonly firstMs?: number
  /** Longest time between two of them. */
  readonly pauseMs: number
  readonly status?: number
  readonly worker?: string
  readonly text: string
  /** Undefined if the request did not ask for them. */
  readonly ids?: readonly number[]
  /** Finish reasons in order. */
  readonly finishes: readonly string[]
  /** Number of `[DONE]`. */
  readonly dones: number
  /** Codes of error responses and error events in order. */
  readonly codes: readonly string[]
  /** Events after the end of the stream: `[DONE]` or an error event. */
  readonly late: number
  readonly usage?: { readonly prompt: number; readonly completion: number }
  /** Different values of `id` and `created`. More than one each: not one answer. */
  readonly names: number
  /** Events or bodies that are not what the API promises. */
  readonly malformed: readonly string[]
  /** Resumptions that the gateway reports in a response header, if it does. */
  readonly resumed: number
}

/** One thing that the adversary did. */
export interface Fault {
  /** ROUND:STEP, its place in the schedule. */
  readonly id: string
  readonly kind: string
  /** Machines and processes: d1, gw1, gw1/owner, gw1/relay-2, store; both ends of a path. */
  readonly targets: readonly string[]
  readonly startMs: number
  /** Undefined while it lasts. */
  endMs?: number
}

export interface Violation {
  readonly what: string
  readonly detail: string
  readonly atMs: number
}
