/**
 * The owner's tickets of one relay, by the relay's numbers: issued by this owner, or adopted from the one
 * before.
 */
import type { Role } from '../../../cluster/worker.ts'
import { DispatchPlacement, type Placement } from '../../routing/placement.ts'
import type { HandoffExperts } from '../../routing/read-experts.ts'
import type { TicketEnd } from './messages.ts'
import type { OwnerParts } from './owner-server.ts'

/** A ticket as a relay declares it. */
export interface DeclaredTicket {
  readonly worker: string
  readonly role: Role
  readonly tokens: number
  readonly takenMs: number
  readonly request: string
  /** True if a policy counts it. */
  readonly placed: boolean
  readonly handoff: HandoffExperts | undefined
}

export class RelayTickets {
  readonly #parts: Pick<OwnerParts, 'registry' | 'router'>
  readonly #placements = new Map<number, Placement>()
  /** Tickets of workers that are not registered yet. */
  readonly #waiting = new Map<number, DeclaredTicket>()

  constructor(parts: Pick<OwnerParts, 'registry' | 'router'>) {
    this.#parts = parts
  }

  isOn(worker: string): boolean {
    for (const placement of this.#placements.values()) if (placement.worker.id === worker) return true
    return false
  }

  hold(id: number, placement: Placement): void {
    this.#placements.set(id, placement)
  }

  adopt(id: number, ticket: DeclaredTicket): void {
    const { registry, router } = this.#parts
    const { worker, role, tokens, takenMs, request, placed, handoff } = ticket
    const dispatch = registry.adopt(worker, role, tokens, takenMs)
    if (dispatch === undefined) return void this.#waiting.set(id, ticket)
    this.#waiting.delete(id)
    const placement = placed ? router.adopt(request, handoff, dispatch) : new DispatchPlacement(dispatch)
    this.#placements.set(id, placement)
  }

  /** Counts the tickets that waited for this worker. */
  workerAdded(worker: string): void {
    for (const [id, ticket] of this.#waiting) if (ticket.worker === worker) this.adopt(id, ticket)
  }

  end(id: number, how: TicketEnd, tokenUs?: number): void {
    this.#waiting.delete(id)
    const placement = this.#placements.get(id)
    this.#placements.delete(id)
    placement?.end(how, { tokenUs })
  }

  endAll(): void {
    this.#waiting.clear()
    for (const id of this.#placements.keys()) this.end(id, 'ignored')
  }
}
