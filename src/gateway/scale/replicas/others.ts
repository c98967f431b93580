/**
 * What the other replicas have in flight, as they last said. A replica that has said nothing for as long as its lease is gone, and its
 * requests with it. Sums over replicas follow each message by exact integers, so that they end at zero when all have ended. Of a message
 * only that is kept which can be of use here: whoever can write to the store must not be able to fill this process.
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
  rows: Map<WorkerKey, Uint8Array>
  /** Rows may have been missed: it has to be asked. */
  partial: boolean
  /** Messages in a row with numbers that were there before. */
  old: number
}

/** One worker's row of one replica is another now; undefined: all zeros. */
export type RowChanged = (
  key: WorkerKey,
  before: Uint8Array | undefined,
  after: Uint8Array | undefined,
) => void

/** What there is a use for. */
export interface Wanted {
  isKnown(key: WorkerKey): boolean
  /** Of a row; 0: no rows. */
  readonly cells: number
}

/** `twin`: it was taken for dead when another came under its name. */
export type Heard = 'well' | 'missed_rows' | 'malformed' | 'old' | 'twin' | 'too_many'

/** More gateways than anybody puts before the same workers. */
const MOST_OTHERS = 256
/** Two connections of a replica may overtake each other for a moment. What goes on was numbered by somebody else. */
const MOST_OLD = 8
const ANYTHING: Wanted = { isKnown: () => true, cells: 0 }

export class Others {
  /** By name and process: two of one name are two, for as long as both speak. */
  readonly #others = new Map<string, Other>()
  readonly #inflight = new Map<WorkerKey, number>()
  /** Processes that another has taken the place of. */
  readonly #replaced = new Set<string>()
  readonly #rowChanged: RowChanged
  readonly #wanted: Wanted

  constructor(rowChanged: RowChanged = () => {}, wanted: Wanted = ANYTHING) {
    this.#rowChanged = rowChanged
    this.#wanted = wanted
  }

  get count(): number {
    return this.#others.size
  }

  /** Requests of all of them on a worker. */
  inflight(key: WorkerKey): number {
    return this.#inflight.get(key) ?? 0
  }

  /** `missed_rows`: its loads are known, but it must be asked for its rows. Nothing of the others but `well` and `twin` is used. */
  heard(message: StateMessage, nowMs: number): Heard {
    const { from, seq, leaseMs, whole } = message
    const name = nameOf(from)
    const known = this.#others.get(name)
    if (known !== undefined && seq <= known.seq && ++known.old < MOST_OLD) return 'old'
    if (known === undefined && this.#others.size >= MOST_OTHERS && !this.#hasTwin(from)) return 'too_many'
    const { cells } = this.#wanted
    const isOurs = message.cells === cells
    const rows = isOurs ? rowsIn(message, this.#wanted) : new Map<WorkerKey, Uint8Array>()
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
    // Rows of another model or policy are of no use, and are not missed.
    if (whole || !isOurs) other.partial = false
    else if (seq !== other.seq + 1) other.partial = true
    const loads = message.loads.filter(({ key }) => this.#wanted.isKnown(key))
    this.#count(other.loads, -1)
    this.#count(loads, 1)
    this.#takeRows(other, rows, whole || !isOurs)
    Object.assign(other, { seq, leaseMs, loads, heardMs: nowMs, old: 0 })
    return other.partial ? 'missed_rows' : isTwin ? 'twin' : 'well'
  }

  /** @returns whether it was there. */
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

  /** There is a use for more than there was: what they said before has been passed over. */
  missed(): void {
    for (const other of this.#others.values()) other.partial = true
  }

  /** Forgets whose lease has ended, and says who that was. */
  expire(nowMs: number): string[] {
    const gone = [...this.#others.values()].filter(({ heardMs, leaseMs }) => heardMs + leaseMs <= nowMs)
    for (const { from } of gone) this.forget(from)
    return gone.map(({ from }) => from.id)
  }

  /** When the next lease ends if nothing is heard; undefined when there is none. */
  get nextExpiryMs(): number | undefined {
    let next: number | undefined
    for (const { heardMs, leaseMs } of this.#others.values())
      next = Math.min(next ?? Infinity, heardMs + leaseMs)
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
    for (const { rows } of this.#others.values())
      for (const entry of rows) if (entry[1].length === cells) yield entry
  }

  #hasTwin({ id }: Sender): boolean {
    return [...this.#others.values()].some(({ from }) => from.id === id)
  }

  /** Whoever starts again under its name has none of the requests from before. */
  #replace(by: Sender): void {
    for (const { from } of this.#others.values()) {
      if (from.id !== by.id) continue
      if (this.#replaced.size >= MOST_OTHERS) this.#replaced.clear()
      this.#replaced.add(nameOf(from))
      this.forget(from)
    }
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

const nameOf = ({ id, boot }: Sender) => `${boot} ${id}`

/** Undefined when one of them is broken. */
function rowsIn({ rows }: StateMessage, { isKnown, cells }: Wanted): Map<WorkerKey, Uint8Array> | undefined {
  try {
    return new Map(
      rows.filter(({ key }) => isKnown(key)).map(({ key, packed }) => [key, unpacked(packed, cells)]),
    )
  } catch (error) {
    if (error instanceof Malformed) return undefined
    throw error
  }
}
