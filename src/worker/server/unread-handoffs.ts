/**
 * Responses with a hand-off that the peer may never have read. A peer that drops its connection with the
 * response unread resets it; its blocks are freed at once instead of when the lease expires. This is best
 * effort: a peer that closes its connection before the response arrives looks like one that has read it,
 * because its FIN is read before the reset. A gateway therefore closes its sending side only and reads on.
 */
import type { Socket } from 'node:net'

export class UnreadHandoffs {
  readonly #release: (remoteId: string) => void
  readonly #last = new WeakMap<Socket, string>()

  constructor(release: (remoteId: string) => void) {
    this.#release = release
  }

  /** The last response on this connection. */
  sent(socket: Socket, remoteId: string): void {
    this.#last.set(socket, remoteId)
  }

  /** Another request arrived on the connection, so the previous response has been read. */
  heard(socket: Socket): void {
    this.#last.delete(socket)
  }

  closed(socket: Socket, wasReset: boolean): void {
    const remoteId = this.#last.get(socket)
    this.#last.delete(socket)
    if (wasReset && remoteId !== undefined) this.#release(remoteId)
  }
}
