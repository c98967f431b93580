/**
 * Assigns an index, and with it a cluster of the artifact, to each decode worker. A worker gets its index
 * when it is first listed, ready or not, so that the order in which workers become ready does not matter and
 * two gateways with the same list agree.
 */
import { sortedById } from '../../discovery/source.ts'

export class WorkerIndexes {
  readonly #indexes: Map<string, number>

  constructor(indexes = new Map<string, number>()) {
    this.#indexes = indexes
  }

  indexOf(id: string): number | undefined {
    return this.#indexes.get(id)
  }

  /** `registered`: indexes that workers already have. `taken`: indexes of workers from other sources. */
  update(ids: Iterable<string>, registered: ReadonlyMap<string, number>, taken: ReadonlySet<number>): void {
    const listed = new Set(ids)
    for (const [id, index] of this.#indexes)
      if (!listed.has(id) || (!registered.has(id) && taken.has(index))) this.#indexes.delete(id)
    for (const [id, index] of registered) if (listed.has(id)) this.#indexes.set(id, index)
    const used = new Set([...this.#indexes.values(), ...taken])
    const unassigned = [...listed].filter(id => !this.#indexes.has(id)).map(id => ({ id }))
    let next = 0
    for (const { id } of sortedById(unassigned)) {
      while (used.has(next)) next++
      this.#indexes.set(id, next++)
    }
  }
}
