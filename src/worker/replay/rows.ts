/**
 * Rows of a trace for replay, read on demand. The most recently used rows stay in memory; running requests
 * keep a reference to theirs.
 */
import { EldrError } from '../../errors.ts'
import type { Trace } from '../../trace/trace.ts'
import { RequestFault } from '../engine/request-fault.ts'
import { type Chances, chancesOf } from './choose.ts'

export interface ReplayRow {
  readonly row: number
  /** Recorded decode steps; may be 0. */
  readonly steps: number
  /** Counts over the prompt’s tokens. */
  readonly chances: Chances
  /** [steps][layers][topK] */
  readonly decode: Uint8Array | Uint16Array
}

/** Maximum bytes of cached rows. */
const KEPT_BYTES = 8 << 20

export class ReplayRows {
  readonly count: number
  readonly #trace: Trace
  readonly #most: number
  /** In order of use. */
  readonly #rows = new Map<number, Promise<ReplayRow>>()

  constructor(trace: Trace) {
    trace.need('replay')
    this.#trace = trace
    this.count = trace.requests
    const { layers, experts, maxSteps, topK } = trace
    this.#most = Math.max(64, Math.floor(KEPT_BYTES / (layers * (4 * experts + (maxSteps + 32) * topK))))
  }

  get(row: number): Promise<ReplayRow> {
    if (!(Number.isInteger(row) && row >= 0 && row < this.count)) {
      return Promise.reject(new RequestFault(400, `The trace has rows 0 to ${this.count - 1}, not ${row}.`))
    }
    const found = this.#rows.get(row) ?? this.#read(row)
    this.#rows.delete(row)
    this.#rows.set(row, found)
    if (this.#rows.size > this.#most) this.#rows.delete(this.#rows.keys().next().value!)
    return found
  }

  #read(row: number): Promise<ReplayRow> {
    const reading = this.#readRow(row)
    // Do not cache the failure: a later read may succeed.
    reading.catch(() => this.#rows.delete(row))
    return reading
  }

  async #readRow(row: number): Promise<ReplayRow> {
    const { layers, experts, topK } = this.#trace
    const [counts, ids, allSteps] = await Promise.all([
      this.#trace.prefillCounts(row, row + 1),
      this.#trace.decodeExpertIds(row, row + 1),
      this.#trace.decodeSteps(),
    ])
    const steps = allSteps[row]!
    return {
      row,
      steps,
      chances: chancesOf(counts, layers, experts, topK),
      decode: ids.slice(0, steps * layers * topK),
    }
  }

  /** Checks at startup that there is at least one step to replay. */
  async check(): Promise<void> {
    const steps = await this.#trace.decodeSteps()
    if (steps.some(count => count > 0)) return
    const found = `no decode step in ${this.count} requests`
    throw new EldrError('ELDR_TRACE_TOO_SMALL', {
      file: this.#trace.path,
      found,
      todo: 'Record requests that generate more than one token.',
    })
  }
}
