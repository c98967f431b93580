/** The most recent decisions, for the admin API. */

/** An entry of `GET /eldr/decisions`. */
export interface DecisionRecord {
  readonly request: string
  readonly timeMs: number
  readonly policy: string
  readonly worker: string
  readonly reason: string
  readonly band?: number
  readonly reject?: string
  readonly covered?: number
  /** State at the decision. `similarity` is set if the policy compared it (NaN: no centroid). */
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

  get isEnabled(): boolean {
    return this.#kept > 0
  }

  add(record: DecisionRecord): void {
    if (this.#kept === 0) return
    this.#records[this.#next] = record
    this.#next = (this.#next + 1) % this.#kept
  }

  /** Newest first. */
  last(limit = Infinity): DecisionRecord[] {
    const records = [...this.#records.slice(this.#next), ...this.#records.slice(0, this.#next)].toReversed()
    return limit < records.length ? records.slice(0, limit) : records
  }

  /** Decisions of a request and of the parts it was split into, newest first. */
  forRequest(request: string): DecisionRecord[] {
    return this.last().filter(record => belongsTo(record.request, request))
  }
}

/** True for the request itself and its parts, whose id is the request's id, a hyphen and a number. */
export function belongsTo(id: string, request: string): boolean {
  return id === request || (id.startsWith(`${request}-`) && /^\d+$/.test(id.slice(request.length + 1)))
}
