/** The last decisions, for whoever asks. */

/** What /eldr/decisions shows. */
export interface DecisionRecord {
  readonly request: string
  readonly timeMs: number
  readonly policy: string
  readonly worker: string
  readonly reason: string
  readonly band?: number
  readonly reject?: string
  readonly covered?: number
  /** Candidates as they were: id, requests in flight, similarity where the policy looked at it (NaN: no centroid). */
  readonly candidates: readonly {
    readonly id: string
    readonly inflight: number
    readonly similarity?: number
  }[]
}

export class DecisionLog {
  readonly #kept: number
  readonly #records: DecisionRecord[] = []
  #next = 0

  constructor(kept: number) {
    this.#kept = kept
  }

  get keeps(): boolean {
    return this.#kept > 0
  }

  add(record: DecisionRecord): void {
    if (this.#kept === 0) return
    this.#records[this.#next] = record
    this.#next = (this.#next + 1) % this.#kept
  }

  /** The last first. */
  last(limit = Infinity): DecisionRecord[] {
    const records = [...this.#records.slice(this.#next), ...this.#records.slice(0, this.#next)].toReversed()
    return limit < records.length ? records.slice(0, limit) : records
  }

  /** Of one request and of the parts that it was split into, the last first. */
  of(request: string): DecisionRecord[] {
    return this.last().filter(record => isOf(record.request, request))
  }
}

/** Parts have the request's id with their number behind it. */
export function isOf(id: string, request: string): boolean {
  return id === request || (id.startsWith(`${request}-`) && /^\d+$/.test(id.slice(request.length + 1)))
}
