/** The last things that happened to workers and to routing: few, and worth telling to one who comes later. */
import type { ClusterEvent } from '../../observe/insight/wire.ts'

const KEPT = 100

export class EventLog {
  readonly #kept: ClusterEvent[] = []
  readonly #added: () => void
  #number = 0

  constructor(added: () => void) {
    this.#added = added
  }

  /** Of the last one. */
  get number(): number {
    return this.#number
  }

  add(kind: ClusterEvent['kind'], about: string, change: string): void {
    this.#kept.push({ number: ++this.#number, atMs: Date.now(), kind, about, change })
    if (this.#kept.length > KEPT) this.#kept.shift()
    this.#added()
  }

  /** The oldest first. */
  last(): readonly ClusterEvent[] {
    return [...this.#kept]
  }

  since(number: number): readonly ClusterEvent[] {
    return this.#kept.filter(one => one.number > number)
  }
}
