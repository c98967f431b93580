/**
 * Open client connections and their traffic. Node counts the bytes of each socket; they are added up when it
 * closes and at each scrape, so that a token costs nothing.
 */
import type { Server } from 'node:http'
import type { Socket } from 'node:net'

export interface ClientTraffic {
  readonly open: number
  readonly accepted: number
  readonly receivedBytes: number
  readonly sentBytes: number
}

export class ClientConnections {
  readonly #open = new Set<Socket>()
  #accepted = 0
  #receivedBytes = 0
  #sentBytes = 0

  /** With TLS, bytes are counted inside of it, and connections after the handshake. */
  watch(server: Server, secure: boolean): void {
    server.on(secure ? 'secureConnection' : 'connection', (socket: Socket) => {
      this.#accepted++
      this.#open.add(socket)
      socket.once('close', () => {
        this.#open.delete(socket)
        this.#receivedBytes += socket.bytesRead
        this.#sentBytes += socket.bytesWritten
      })
    })
  }

  traffic(): ClientTraffic {
    let [receivedBytes, sentBytes] = [this.#receivedBytes, this.#sentBytes]
    for (const { bytesRead, bytesWritten } of this.#open) {
      receivedBytes += bytesRead
      sentBytes += bytesWritten
    }
    return { open: this.#open.size, accepted: this.#accepted, receivedBytes, sentBytes }
  }
}
