/**
 * The requests of a single-process gateway, and who counts them: this process, or the one that has replaced
 * it. The old process declares its tickets to the new one and then asks it for every placement, as a relay
 * asks its owner, so that load is counted once and in one place.
 */
import type { Gate } from '../../flow/handle.ts'
import type { LocalPlacementClient, PlacementClient } from '../../routing/placement-client.ts'
import type { Placement } from '../../routing/placement.ts'
import { ASK } from '../processes/messages.ts'
import { type LinkOptions, type LiveTicket, RelayLink } from '../processes/relay-link.ts'
import { remotePlacementClient } from '../processes/remote-placement-client.ts'

interface OwnTicket extends LiveTicket {
  readonly takenMs: number
  /** Its number at the successor. */
  id?: number
}

type LinkHooks = Omit<LinkOptions, 'path' | 'relay' | 'room'>

/** Without what admission at the successor says: every question is asked. */
const UNKNOWN_ROOM = { room: 0 }

export class OwnShare {
  readonly placement: PlacementClient
  readonly gate: Gate
  readonly #hooks: LinkHooks
  readonly #tickets = new Map<Placement, OwnTicket>()
  #running = 0
  #link: RelayLink | undefined
  #remote: PlacementClient | undefined

  constructor(local: LocalPlacementClient, gate: Gate, hooks: LinkHooks) {
    this.#hooks = hooks
    this.placement = this.#placementClient(local)
    this.gate = this.#counting(gate)
  }

  /** Declares everything to the owner at this path, which decides from now on. */
  async declareTo(path: string, relay: number): Promise<void> {
    if (this.#link !== undefined) return this.#link.moveTo(path)
    const link = new RelayLink({ ...this.#hooks, path, relay, room: () => {} })
    this.#link = link
    this.#remote = remotePlacementClient(link, UNKNOWN_ROOM)
    for (const ticket of this.#tickets.values()) ticket.id = link.bring(ticket, ticket.takenMs)
    link.running = this.#running
    return link.open()
  }

  /** This process decides again: the successor has failed. */
  takeBack(): void {
    this.#link?.close()
    this.#link = this.#remote = undefined
  }

  close(): void {
    this.#link?.close()
  }

  #placementClient(local: LocalPlacementClient): PlacementClient {
    const client = () => this.#remote ?? local
    return {
      any: (role, exclude) => client().any(role, exclude),
      mayRetry: (role, exclude) => client().mayRetry(role, exclude),
      mayResume: exclude => client().mayResume(exclude),
      requestCame: () => client().requestCame(),
      toPrefill: (key, tokens, exclude) =>
        this.#remote?.toPrefill(key, tokens, exclude) ??
        this.#held(local.toPrefill(key, tokens, exclude), { role: 'prefill', tokens }),
      toRelease: exclude =>
        this.#remote?.toRelease(exclude) ??
        this.#held(local.toRelease(exclude), { role: 'decode', tokens: 0 }),
      toDecode: (request, handoff, tokens, exclude, turn) =>
        this.#remote?.toDecode(request, handoff, tokens, exclude, turn) ??
        this.#held(local.toDecode(request, handoff, tokens, exclude, turn), placed(request, tokens)),
      toHolder: (request, turn, exclude) =>
        this.#remote?.toHolder(request, turn, exclude) ??
        this.#held(local.toHolder(request, turn, exclude), placed(request, turn.tokens)),
    }
  }

  /** Keeps the ticket of a placement until its end. */
  #held<P extends Placement>(placement: P | undefined, ticket: Omit<LiveTicket, 'worker'>): P | undefined {
    if (placement === undefined) return undefined
    const own: OwnTicket = { ...ticket, worker: placement.worker, takenMs: performance.now() }
    this.#tickets.set(placement, own)
    const end = placement.end.bind(placement)
    placement.end = (how, seen) => {
      this.#tickets.delete(placement)
      if (own.id !== undefined) this.#link?.release(own.id, how, seen)
      end(how, seen)
    }
    return placement
  }

  #counting(gate: Gate): Gate {
    return {
      get mustWait() {
        return gate.mustWait
      },
      check: () => gate.check(),
      enter: async stop => {
        await gate.enter(stop)
        this.#running++
        if (this.#link === undefined) return
        this.#link.running++
        this.#link.tell(ASK.running, 0, to => to.number(1))
      },
      leave: () => {
        gate.leave()
        this.#running--
        if (this.#link === undefined) return
        this.#link.running--
        this.#link.tell(ASK.leave)
      },
    }
  }
}

/** Without the expert counts: they are large, and few gateways are ever replaced. */
function placed(request: string, tokens: number): Omit<LiveTicket, 'worker'> {
  return { role: 'decode', tokens, placed: { request, handoff: undefined } }
}
