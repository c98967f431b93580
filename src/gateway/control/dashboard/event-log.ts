/** Recent events of workers and routing, kept for dashboards that connect later. */
import type { ClusterEvent } from '../../observe/insight/wire.ts'

const KEPT = 100

export class EventLog {
  readonly #kept: ClusterEvent[] = []
  readonly #added: () => void
  #number = 0

  constructor(added: () => void) {
    this.#added = added
  }

  /** Number of the last event. */
  get number(): number {
    return this.#number
  }

  add(kind: ClusterEvent['kind'], about: string, change: string): void {
    this.#kept.push({ number: ++this.#number, atMs: Date.now(), kind, about, change })
    if (this.#kept.length > KEPT) this.#kept.shift()
    this.#added()
  }

  /** Oldest first. */
  last(): readonly ClusterEvent[] {
    return [...this.#kept]
  }

  since(number: number): readonly ClusterEvent[] {
    return this.#kept.filter(one => one.number > number)
  }
}
