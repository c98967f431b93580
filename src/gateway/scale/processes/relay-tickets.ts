/** The tickets of one relay at the owner, by the relay's numbers: those that this owner gave, and those that it took over from another. */
import type { Role } from '../../../cluster/worker.ts'
import { DispatchPlacement, type Placement } from '../../routing/placement.ts'
import type { HandoffExperts } from '../../routing/read-experts.ts'
import type { TicketEnd } from './messages.ts'
import type { OwnerParts } from './owner-server.ts'

/** As a relay declares it. */
export interface DeclaredTicket {
  readonly worker: string
  readonly role: Role
  readonly tokens: number
  readonly takenMs: number
  readonly request: string
  /** Whether a policy counts it. */
  readonly placed: boolean
  readonly handoff: HandoffExperts | undefined
}

export class RelayTickets {
  readonly #parts: Pick<OwnerParts, 'registry' | 'router'>
  readonly #held = new Map<number, Placement>()
  /** Of workers that have not come (back) yet. */
  readonly #homeless = new Map<number, DeclaredTicket>()

  constructor(parts: Pick<OwnerParts, 'registry' | 'router'>) {
    this.#parts = parts
  }

  isOn(worker: string): boolean {
    for (const { worker: held } of this.#held.values()) if (held.id === worker) return true
    return false
  }

  hold(id: number, placement: Placement): void {
    this.#held.set(id, placement)
  }

  adopt(id: number, ticket: DeclaredTicket): void {
    const { registry, router } = this.#parts
    const { worker, role, tokens, takenMs, request, placed, handoff } = ticket
    const dispatch = registry.adopt(worker, role, tokens, takenMs)
    if (dispatch === undefined) return void this.#homeless.set(id, ticket)
    this.#homeless.delete(id)
    this.#held.set(id, placed ? router.adopt(request, handoff, dispatch) : new DispatchPlacement(dispatch))
  }

  /** Its tickets can be counted now. */
  workerCame(worker: string): void {
    for (const [id, ticket] of this.#homeless) if (ticket.worker === worker) this.adopt(id, ticket)
  }

  end(id: number, how: TicketEnd): void {
    this.#homeless.delete(id)
    const placement = this.#held.get(id)
    this.#held.delete(id)
    placement?.end(how)
  }

  endAll(): void {
    this.#homeless.clear()
    for (const id of this.#held.keys()) this.end(id, 'ignored')
  }
}
