/**
 * Requests on decode workers, and the policy that counts each of them. When the table changes they stay on
 * their workers and are moved to the new policy, which would otherwise see idle workers. Predicting the
 * experts of a request takes about 50 µs, so thousands of them are moved over several turns of the event
 * loop; a request that ends meanwhile is released by the policy that counts it.
 */
import type { RoutableRequest } from '../../policy/decode-policy.ts'
import { belongsTo } from '../observe/decision-log.ts'
import type { RoutingTable } from './routing-table.ts'

interface LivePlacement {
  table: RoutingTable
  readonly worker: number
  readonly workerId: string
  /** The request as the policy counts it. */
  counted: RoutableRequest
}

/** Time that the move may take in a turn of the event loop. */
const TURN_MS = 1

export class LiveRequests {
  readonly #placements = new Map<RoutableRequest, LivePlacement>()
  #table: RoutingTable
  #moving: MapIterator<[RoutableRequest, LivePlacement]> | undefined

  constructor(table: RoutingTable) {
    this.#table = table
  }

  take(request: RoutableRequest, worker: number, workerId: string): void {
    this.#table.policy.dispatched?.(request, worker)
    this.#table.shadow?.dispatched(request, worker)
    this.#placements.set(request, { table: this.#table, worker, workerId, counted: request })
  }

  leave(request: RoutableRequest): void {
    const placement = this.#placements.get(request)
    if (placement === undefined) return
    this.#placements.delete(request)
    placement.table.policy.released?.(placement.counted, placement.worker)
    placement.table.shadow?.released(placement.counted, placement.worker)
  }

  /** Requests as the policy in force counts them, with the index of their worker. */
  *inFlight(): Generator<readonly [request: RoutableRequest, worker: number]> {
    for (const { table, counted, worker } of this.#placements.values())
      if (table === this.#table) yield [counted, worker]
  }

  /** Workers that a request, or parts of it, are on. */
  workersOf(id: string): string[] {
    return [...this.#placements]
      .filter(([request]) => belongsTo(request.id, id))
      .map(([, { workerId }]) => workerId)
  }

  /**
   * If the table changes again during a move, requests that have not been moved go directly to the last
   * table.
   */
  moveTo(table: RoutingTable): void {
    this.#table = table
    const isMoving = this.#moving !== undefined
    this.#moving = this.#placements.entries()
    if (!isMoving) this.#move()
  }

  #move(): void {
    const untilMs = performance.now() + TURN_MS
    for (let next = this.#moving!.next(); next.done !== true; next = this.#moving!.next()) {
      const [, placement] = next.value
      if (placement.table === this.#table) continue
      // Signatures of different artifacts cannot be compared.
      const comparable = placement.table.artifact?.primary.model === this.#table.artifact?.primary.model
      if (!comparable) placement.counted = withoutSignature(placement.counted)
      placement.table = this.#table
      placement.table.policy.dispatched?.(placement.counted, placement.worker)
      placement.table.shadow?.dispatched(placement.counted, placement.worker)
      if (performance.now() < untilMs) continue
      setImmediate(() => this.#move())
      return
    }
    this.#moving = undefined
  }
}

function withoutSignature({ id, counts }: RoutableRequest): RoutableRequest {
  return { id, counts }
}
