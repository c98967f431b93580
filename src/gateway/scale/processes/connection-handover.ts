/** Passes the connections that the supervisor accepts to the relays, in turn. */
import type { Server, Socket } from 'node:net'
import type { Member } from './member.ts'

/** Limit of connections that wait while no relay is ready. */
const MAX_WAITING = 1_024
/** Attempts to hand over a connection before it is closed. */
const MAX_TRIES = 3

interface Handover {
  readonly socket: Socket
  readonly relay: Member
  readonly tries: number
  /** Last ping sent to the relay before the connection. */
  readonly afterPing: number
}

export class ConnectionHandover {
  readonly #relays: readonly Member[]
  #waiting: Socket[] = []
  /** Sent to a relay and not confirmed. */
  readonly #pending = new Map<number, Handover>()
  #turn = 0
  #number = 0

  constructor(server: Server, relays: readonly Member[]) {
    this.#relays = relays
    server.on('connection', (socket: Socket) => {
      socket.on('error', () => {}) // the relay that has it sees the error too
      this.#hand(socket)
    })
  }

  relayReady(): void {
    for (const socket of this.#waiting.splice(0)) this.#hand(socket)
  }

  confirmed(number: number): void {
    this.#pending.get(number)?.socket.destroy() // closes only this process's copy
    this.#pending.delete(number)
  }

  /** Connections that the relay has not confirmed go to another one. */
  relayDied(relay: Member): void {
    this.#retry(relay, Infinity)
  }

  /**
   * The relay has received everything sent before this ping. A connection sent before it and not confirmed
   * was lost, because the relay has no file descriptors left.
   */
  pongReceived(relay: Member, ping: number): void {
    this.#retry(relay, ping)
  }

  close(): void {
    for (const { socket } of this.#pending.values()) socket.destroy()
    for (const socket of this.#waiting) socket.destroy()
  }

  #retry(relay: Member, beforePing: number): void {
    for (const [number, { socket, relay: to, tries, afterPing }] of this.#pending) {
      if (to !== relay || afterPing >= beforePing) continue
      this.#pending.delete(number)
      if (tries < MAX_TRIES) this.#hand(socket, tries + 1)
      else socket.destroy()
    }
  }

  #hand(socket: Socket, tries = 1): void {
    const ready = this.#relays.filter(({ isReady }) => isReady)
    const preferred = ready.filter(({ isLeaving, isSlow }) => !isLeaving && !isSlow)
    const choices = preferred.length > 0 ? preferred : ready
    if (choices.length > 0) {
      const relay = choices[this.#turn++ % choices.length]!
      const number = ++this.#number
      this.#pending.set(number, { socket, relay, tries, afterPing: relay.pings })
      // Kept open here until it is confirmed: otherwise the client would wait forever if the relay dies
      // first.
      relay.hand(number, socket)
    } else if (this.#waiting.length < MAX_WAITING) this.#waiting.push(socket)
    else socket.destroy()
  }
}
