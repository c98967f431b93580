/** Connections that the supervisor has accepted, handed to the relays in turn. */
import type { Server, Socket } from 'node:net'
import type { Member } from './member.ts'

/** Connections that wait for a relay when there is none. */
const MOST_WAITING = 1_024
/** So many relays may fail to get a connection before its client is let go. */
const MOST_TRIES = 3

interface OnTheWay {
  readonly socket: Socket
  readonly relay: Member
  readonly tries: number
  /** What the relay had been asked last when it was sent. */
  readonly after: number
}

export class Hands {
  readonly #relays: readonly Member[]
  #waiting: Socket[] = []
  /** Handed on, and nobody has said yet that it has it. */
  readonly #onTheWay = new Map<number, OnTheWay>()
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
    this.#lost(relay, Infinity)
  }

  /** It has got all that was sent before this ping; a connection among that which it has not taken is lost: it has no file descriptor left. */
  answered(relay: Member, ping: number): void {
    this.#lost(relay, ping)
  }

  close(): void {
    for (const { socket } of this.#onTheWay.values()) socket.destroy()
    for (const socket of this.#waiting) socket.destroy()
  }

  #lost(relay: Member, before: number): void {
    for (const [number, { socket, relay: to, tries, after }] of this.#onTheWay) {
      if (to !== relay || after >= before) continue
      this.#onTheWay.delete(number)
      if (tries < MOST_TRIES) this.#hand(socket, tries + 1)
      else socket.destroy()
    }
  }

  #hand(socket: Socket, tries = 1): void {
    const there = this.#relays.filter(({ isReady }) => isReady)
    const best = there.filter(({ isLeaving, isSlow }) => !isLeaving && !isSlow)
    const ready = best.length > 0 ? best : there
    if (ready.length > 0) {
      const relay = ready[this.#turn++ % ready.length]!
      const number = ++this.#number
      this.#onTheWay.set(number, { socket, relay, tries, after: relay.pings })
      // Open here too until it has it: one that dies with connections on the way would leave clients waiting for nobody.
      relay.hand(number, socket)
    } else if (this.#waiting.length < MOST_WAITING) this.#waiting.push(socket)
    else socket.destroy()
  }
}
