/**
 * Answers that say where blocks are, and that may never have been read: a gateway whose client leaves drops the connection with the answer
 * in it. A peer that has read an answer closes its connection in order; one that drops it unread resets it, and then nobody knows of the
 * blocks. Without this they would wait for the whole of their lease.
 */
import type { Socket } from 'node:net'

export class UnreadHandoffs {
  readonly #release: (remoteId: string) => void
  readonly #last = new WeakMap<Socket, string>()

  constructor(release: (remoteId: string) => void) {
    this.#release = release
  }

  /** The last thing that went out on this connection. */
  sent(socket: Socket, remoteId: string): void {
    this.#last.set(socket, remoteId)
  }

  /** Another request came on it: the answer before has been read. */
  heard(socket: Socket): void {
    this.#last.delete(socket)
  }

  closed(socket: Socket, wasReset: boolean): void {
    const remoteId = this.#last.get(socket)
    this.#last.delete(socket)
    if (wasReset && remoteId !== undefined) this.#release(remoteId)
  }
}
