/** Connections that the supervisor has accepted, handed to the relays in turn. */
import type { Server, Socket } from 'node:net'
import type { Member } from './member.ts'

/** Connections that wait for a relay when there is none. */
const MOST_WAITING = 1_024

export class Hands {
  readonly #relays: readonly Member[]
  #waiting: Socket[] = []
  /** Handed on, and nobody has said yet that it has it. */
  readonly #onTheWay = new Map<number, { readonly socket: Socket; readonly relay: Member }>()
  #turn = 0
  #number = 0

  constructor(server: Server, relays: readonly Member[]) {
    this.#relays = relays
    server.on('connection', (socket: Socket) => {
      socket.on('error', () => {}) // whoever has it hears of it too
      this.#hand(socket)
    })
  }

  /** A relay is there. */
  again(): void {
    for (const socket of this.#waiting.splice(0)) this.#hand(socket)
  }

  taken(number: number): void {
    this.#onTheWay.get(number)?.socket.destroy() // this process' end of it alone
    this.#onTheWay.delete(number)
  }

  /** What it has not taken is for another. */
  died(relay: Member): void {
    for (const [number, { socket, relay: to }] of this.#onTheWay) {
      if (to !== relay) continue
      this.#onTheWay.delete(number)
      this.#hand(socket)
    }
  }

  close(): void {
    for (const { socket } of this.#onTheWay.values()) socket.destroy()
    for (const socket of this.#waiting) socket.destroy()
  }

  #hand(socket: Socket): void {
    const there = this.#relays.filter(({ isReady }) => isReady)
    const staying = there.filter(({ isLeaving }) => !isLeaving)
    const ready = staying.length > 0 ? staying : there
    if (ready.length > 0) {
      const relay = ready[this.#turn++ % ready.length]!
      const number = ++this.#number
      this.#onTheWay.set(number, { socket, relay })
      // Open here too until it has it: one that dies with connections on the way would leave clients waiting for nobody.
      relay.hand(number, socket)
    } else if (this.#waiting.length < MOST_WAITING) this.#waiting.push(socket)
    else socket.destroy()
  }
}
