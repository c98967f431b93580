/**
 * What the other replicas have in flight, as they last said. A replica that has said nothing for as long as its lease is gone, and its
 * requests with it. Sums over replicas follow each message by exact integers, so that they end at zero when all have ended.
 */
import { Malformed } from './bytes.ts'
import type { LoadEntry, Sender, StateMessage, WorkerKey } from './messages.ts'
import { unpacked } from './rows.ts'

interface Other {
  readonly from: Sender
  seq: number
  heardMs: number
  leaseMs: number
  loads: readonly LoadEntry[]
  cells: number
  rows: Map<WorkerKey, Uint8Array>
  /** Rows may have been missed: it has to be asked. */
  partial: boolean
}

/** One worker's row of one replica is another now; undefined: all zeros. */
export type RowChanged = (key: WorkerKey, before: Uint8Array | undefined, after: Uint8Array | undefined) => void

export type Heard = 'well' | 'missed_rows' | 'malformed' | 'old'

export class Others {
  readonly #others = new Map<string, Other>()
  readonly #inflight = new Map<WorkerKey, number>()
  readonly #rowChanged: RowChanged

  constructor(rowChanged: RowChanged = () => {}) {
    this.#rowChanged = rowChanged
  }

  get count(): number {
    return this.#others.size
  }

  /** Requests of all of them on a worker. */
  inflight(key: WorkerKey): number {
    return this.#inflight.get(key) ?? 0
  }

  /** `missed_rows`: its loads are known, but it must be asked for its rows. Nothing of a malformed message is used. */
  heard(message: StateMessage, nowMs: number): Heard {
    const { from, seq, leaseMs, loads, cells, whole } = message
    let other = this.#others.get(from.id)
    if (other !== undefined && other.from.boot === from.boot && seq <= other.seq) return 'old'
    const rows = rowsIn(message)
    if (rows === undefined) return 'malformed'
    if (other !== undefined && other.from.boot !== from.boot) this.forget(from.id)
    if (other?.from.boot !== from.boot) {
      other = { from, seq: seq - 1, heardMs: nowMs, leaseMs, loads: [], cells, rows: new Map(), partial: !whole }
      this.#others.set(from.id, other)
    }
    if (whole) other.partial = false
    else if (seq !== other.seq + 1 || cells !== other.cells) other.partial = true
    this.#count(other.loads, -1)
    this.#count(loads, 1)
    this.#takeRows(other, rows, whole || cells !== other.cells)
    Object.assign(other, { seq, leaseMs, loads, cells, heardMs: nowMs })
    return other.partial ? 'missed_rows' : 'well'
  }

  /** @returns whether it was there. */
  forget(id: string): boolean {
    const other = this.#others.get(id)
    if (other === undefined) return false
    this.#others.delete(id)
    this.#count(other.loads, -1)
    this.#takeRows(other, new Map(), true)
    return true
  }

  knows({ id, boot }: Sender): boolean {
    return this.#others.get(id)?.from.boot === boot
  }

  /** Forgets whose lease has ended, and says who that was. */
  expire(nowMs: number): string[] {
    const gone = [...this.#others.values()].filter(({ heardMs, leaseMs }) => heardMs + leaseMs <= nowMs).map(({ from }) => from.id)
    for (const id of gone) this.forget(id)
    return gone
  }

  /** When the next lease ends if nothing is heard; undefined when there is none. */
  get nextExpiryMs(): number | undefined {
    let next: number | undefined
    for (const { heardMs, leaseMs } of this.#others.values()) next = Math.min(next ?? Infinity, heardMs + leaseMs)
    return next
  }

  /** When the one was heard that has been silent longest. */
  get oldestHeardMs(): number | undefined {
    let oldest: number | undefined
    for (const { heardMs } of this.#others.values()) oldest = Math.min(oldest ?? Infinity, heardMs)
    return oldest
  }

  /** All rows there are of so many cells. */
  *rows(cells: number): Generator<readonly [WorkerKey, Uint8Array]> {
    for (const other of this.#others.values()) if (other.cells === cells) yield* other.rows
  }

  #count(loads: readonly LoadEntry[], sign: 1 | -1): void {
    for (const { key, inflight } of loads) {
      const sum = (this.#inflight.get(key) ?? 0) + sign * inflight
      if (sum === 0) this.#inflight.delete(key)
      else this.#inflight.set(key, sum)
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

  /** A row of another number of cells goes before the next one comes. */
  #dropped(key: WorkerKey, before: Uint8Array | undefined): undefined {
    if (before !== undefined) this.#rowChanged(key, before, undefined)
    return undefined
  }
}

/** Undefined when one of them is broken. */
function rowsIn({ rows, cells }: StateMessage): Map<WorkerKey, Uint8Array> | undefined {
  try {
    return new Map(rows.map(({ key, packed }) => [key, unpacked(packed, cells)]))
  } catch (error) {
    if (error instanceof Malformed) return undefined
    throw error
  }
}
