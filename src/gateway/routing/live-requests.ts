/**
 * Requests that are on a decode worker, and the policy that counts each. When the table changes they stay where they are, and the new
 * policy is told of them: it would else think workers idle. To predict the experts of one request takes some 50 µs, so thousands of them
 * are told over several turns of the event loop; a request that ends meanwhile ends with the policy that knows it.
 */
import type { RoutableRequest } from '../../policy/decode-policy.ts'
import { isOf } from '../observe/decision-log.ts'
import type { RoutingTable } from './routing-table.ts'

interface Place {
  table: RoutingTable
  readonly worker: number
  readonly workerId: string
  /** The request as the policy knows it. */
  known: RoutableRequest
}

/** How much of a turn of the event loop the move may take. */
const TURN_MS = 1

export class LiveRequests {
  readonly #places = new Map<RoutableRequest, Place>()
  #table: RoutingTable
  #moving: MapIterator<[RoutableRequest, Place]> | undefined

  constructor(table: RoutingTable) {
    this.#table = table
  }

  take(request: RoutableRequest, worker: number, workerId: string): void {
    this.#table.policy.dispatched?.(request, worker)
    this.#places.set(request, { table: this.#table, worker, workerId, known: request })
  }

  leave(request: RoutableRequest): void {
    const place = this.#places.get(request)
    if (place === undefined) return
    this.#places.delete(request)
    place.table.policy.released?.(place.known, place.worker)
  }

  /** Workers that a request, or parts of it, are on. */
  workersOf(id: string): string[] {
    return [...this.#places].filter(([request]) => isOf(request.id, id)).map(([, { workerId }]) => workerId)
  }

  /** Of two tables that come one upon the other the last counts: whoever has not been moved yet goes to it at once. */
  moveTo(table: RoutingTable): void {
    this.#table = table
    const underWay = this.#moving !== undefined
    this.#moving = this.#places.entries()
    if (!underWay) this.#move()
  }

  #move(): void {
    const untilMs = performance.now() + TURN_MS
    for (let next = this.#moving!.next(); next.done !== true; next = this.#moving!.next()) {
      const [, place] = next.value
      if (place.table === this.#table) continue
      // Another artifact's signature is no signature to this one.
      const signed = place.table.artifact?.primary.model === this.#table.artifact?.primary.model
      if (!signed) place.known = withoutSignature(place.known)
      place.table = this.#table
      place.table.policy.dispatched?.(place.known, place.worker)
      if (performance.now() < untilMs) continue
      setImmediate(() => this.#move())
      return
    }
    this.#moving = undefined
  }
}

function withoutSignature({ id, counts }: RoutableRequest): RoutableRequest {
  return { id, ...(counts && { counts }) }
}
