/**
 * The requests in flight of the other replicas, as of their last messages. A replica without a message for
 * its lease time is removed with its requests. Sums over replicas are exact integers, so they reach zero when
 * all requests have ended. Only what is needed here is kept of a message: a client that can write to the
 * store must not be able to exhaust the memory of this process.
 */
import { IDLE, type Load } from '../../../cluster/tickets.ts'
import { Malformed } from './bytes.ts'
import type { LoadEntry, Sender, StateMessage, WorkerKey } from './messages.ts'
import { unpackRow } from './rows.ts'

interface Other {
  readonly from: Sender
  seq: number
  heardMs: number
  leaseMs: number
  loads: readonly LoadEntry[]
  rows: Map<WorkerKey, Uint8Array>
  /** Rows may have been missed, and must be asked for. */
  partial: boolean
  /** Consecutive messages with an old sequence number. */
  old: number
}

/** A replica's row of a worker has changed; undefined: all zeros. */
export type RowChanged = (
  key: WorkerKey,
  before: Uint8Array | undefined,
  after: Uint8Array | undefined,
) => void

/** What is needed here. */
export interface Needed {
  isKnown(key: WorkerKey): boolean
  /** Cells of a row; 0 if no rows are needed. */
  readonly cells: number
}

/** `twin`: it was considered dead when another process with its id appeared. */
export type Outcome = 'ok' | 'missed_rows' | 'malformed' | 'old' | 'twin' | 'too_many'

/** No deployment has more gateways in front of the same workers. */
const MAX_REPLICAS = 256
/**
 * Messages of a replica may arrive out of order briefly. More than this means that the high number was
 * forged.
 */
const MAX_OLD = 8
const ALL_LOADS: Needed = { isKnown: () => true, cells: 0 }

export class OtherReplicas {
  /** By id and process: two processes with one id count as two while both send messages. */
  readonly #others = new Map<string, Other>()
  readonly #loads = new Map<WorkerKey, Load>()
  /** Processes that were replaced by another with the same id. */
  readonly #replaced = new Set<string>()
  readonly #rowChanged: RowChanged
  readonly #needed: Needed

  constructor(rowChanged: RowChanged = () => {}, needed: Needed = ALL_LOADS) {
    this.#rowChanged = rowChanged
    this.#needed = needed
  }

  get count(): number {
    return this.#others.size
  }

  /** Requests of all replicas on a worker, and their tokens. */
  load(key: WorkerKey): Load {
    return this.#loads.get(key) ?? IDLE
  }

  /**
   * `missed_rows`: its loads are used, but its rows must be asked for. `malformed`, `old` and `too_many` are
   * ignored.
   */
  received(message: StateMessage, nowMs: number): Outcome {
    const { from, seq, leaseMs, whole } = message
    const name = nameOf(from)
    const known = this.#others.get(name)
    if (known !== undefined && seq <= known.seq && ++known.old < MAX_OLD) return 'old'
    if (known === undefined && this.#others.size >= MAX_REPLICAS && !this.#hasTwin(from)) return 'too_many'
    const sameShape = message.cells === this.#needed.cells
    const rows = sameShape ? rowsIn(message, this.#needed) : new Map<WorkerKey, Uint8Array>()
    if (rows === undefined) return 'malformed'
    const isTwin = this.#replaced.has(name)
    if (known === undefined && !isTwin) this.#replace(from)
    const other: Other = known ?? {
      from,
      seq: seq - 1,
      heardMs: nowMs,
      leaseMs,
      loads: [],
      rows: new Map(),
      partial: !whole,
      old: 0,
    }
    this.#others.set(name, other)
    // Rows of another model or policy are not needed.
    if (whole || !sameShape) other.partial = false
    else if (seq !== other.seq + 1) other.partial = true
    const loads = message.loads.filter(({ key }) => this.#needed.isKnown(key))
    this.#count(other.loads, -1)
    this.#count(loads, 1)
    this.#takeRows(other, rows, whole || !sameShape)
    Object.assign(other, { seq, leaseMs, loads, heardMs: nowMs, old: 0 })
    return other.partial ? 'missed_rows' : isTwin ? 'twin' : 'ok'
  }

  /** Returns false if it was not known. */
  forget(from: Sender): boolean {
    const other = this.#others.get(nameOf(from))
    if (other === undefined) return false
    this.#others.delete(nameOf(from))
    this.#count(other.loads, -1)
    this.#takeRows(other, new Map(), true)
    return true
  }

  knows(from: Sender): boolean {
    return this.#others.has(nameOf(from))
  }

  /** More is needed than before: rows that were ignored must be asked for. */
  markIncomplete(): void {
    for (const other of this.#others.values()) other.partial = true
  }

  /** Removes replicas whose lease has ended and returns their ids. */
  expire(nowMs: number): string[] {
    const gone = [...this.#others.values()].filter(({ heardMs, leaseMs }) => heardMs + leaseMs <= nowMs)
    for (const { from } of gone) this.forget(from)
    return gone.map(({ from }) => from.id)
  }

  /** When the next lease ends without a message; undefined without replicas. */
  get nextExpiryMs(): number | undefined {
    let next: number | undefined
    for (const { heardMs, leaseMs } of this.#others.values())
      next = Math.min(next ?? Infinity, heardMs + leaseMs)
    return next
  }

  /** Time of the oldest last message. */
  get oldestMessageMs(): number | undefined {
    let oldest: number | undefined
    for (const { heardMs } of this.#others.values()) oldest = Math.min(oldest ?? Infinity, heardMs)
    return oldest
  }

  /** All rows with this number of cells. */
  *rows(cells: number): Generator<readonly [WorkerKey, Uint8Array]> {
    for (const { rows } of this.#others.values())
      for (const entry of rows) if (entry[1].length === cells) yield entry
  }

  #hasTwin({ id }: Sender): boolean {
    return [...this.#others.values()].some(({ from }) => from.id === id)
  }

  /** A restarted replica has none of the requests of the process before. */
  #replace(by: Sender): void {
    for (const { from } of this.#others.values()) {
      if (from.id !== by.id) continue
      if (this.#replaced.size >= MAX_REPLICAS) this.#replaced.clear()
      this.#replaced.add(nameOf(from))
      this.forget(from)
    }
  }

  #count(loads: readonly LoadEntry[], sign: 1 | -1): void {
    for (const { key, inflight, tokens } of loads) {
      const before = this.load(key)
      const sum = { inflight: before.inflight + sign * inflight, tokens: before.tokens + sign * tokens }
      if (sum.inflight === 0 && sum.tokens === 0) this.#loads.delete(key)
      else this.#loads.set(key, sum)
    }
  }

  #takeRows(other: Other, rows: ReadonlyMap<WorkerKey, Uint8Array>, whole: boolean): void {
    if (whole)
      for (const [key, before] of other.rows) {
        if (rows.has(key)) continue
        other.rows.delete(key)
        this.#rowChanged(key, before, undefined)
      }
    for (const [key, after] of rows) {
      const before = other.rows.get(key)
      other.rows.set(key, after)
      this.#rowChanged(key, before?.length === after.length ? before : this.#dropped(key, before), after)
    }
  }

  /** Removes a row with another number of cells before the next one is added. */
  #dropped(key: WorkerKey, before: Uint8Array | undefined): undefined {
    if (before !== undefined) this.#rowChanged(key, before, undefined)
    return undefined
  }
}

const nameOf = ({ id, boot }: Sender) => `${boot} ${id}`

/** Undefined if a row is malformed. */
function rowsIn({ rows }: StateMessage, { isKnown, cells }: Needed): Map<WorkerKey, Uint8Array> | undefined {
  try {
    return new Map(
      rows.filter(({ key }) => isKnown(key)).map(({ key, packed }) => [key, unpackRow(packed, cells)]),
    )
  } catch (error) {
    if (error instanceof Malformed) return undefined
    throw error
  }
}
