/**
 * The index that each decode worker should have, and with it a cluster of the artifact. A worker has its place from the moment that it is
 * named, ready or not, so that the order in which workers become ready does not matter, and two gateways that see the same names agree.
 */
import { sortedById } from '../../discovery/source.ts'

export class Places {
  readonly #places: Map<string, number>

  constructor(places = new Map<string, number>()) {
    this.#places = places
  }

  of(id: string): number | undefined {
    return this.#places.get(id)
  }

  /** `registered`: indexes that some of them have already. `others`: those that are taken by workers of somebody else. */
  update(ids: Iterable<string>, registered: ReadonlyMap<string, number>, others: ReadonlySet<number>): void {
    const named = new Set(ids)
    for (const [id, place] of this.#places)
      if (!named.has(id) || (!registered.has(id) && others.has(place))) this.#places.delete(id)
    for (const [id, place] of registered) if (named.has(id)) this.#places.set(id, place)
    const taken = new Set([...this.#places.values(), ...others])
    const without = [...named].filter(id => !this.#places.has(id)).map(id => ({ id }))
    let next = 0
    for (const { id } of sortedById(without)) {
      while (taken.has(next)) next++
      this.#places.set(id, next++)
    }
  }
}
