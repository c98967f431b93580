/**
 * Leaves the port to another process. Connections stay open for the client to use: the response to the next
 * request on each closes it, and idle ones end at their timeout. A server that closes an idle connection may
 * do so while a request is on its way.
 */
import type { Server } from 'node:http'
import { Server as NetServer } from 'node:net'
import type { Handler } from '../flow/handle.ts'

/** After this, connections that are still open are closed. */
const LAST_MS = 1_000

export class Leaving {
  /** Resolves when the last connection has closed. */
  readonly left: Promise<void>
  readonly #handler: Handler
  readonly #server: Server
  #timer: NodeJS.Timeout | undefined
  #isOver = false

  constructor(handler: Handler, server: Server, graceMs: number) {
    this.#handler = handler
    this.#server = server
    handler.leaving = true
    // The close of an HTTP server would also close idle connections.
    this.left = new Promise<void>(resolve =>
      NetServer.prototype.close.call(server, () => {
        clearTimeout(this.#timer)
        this.#isOver = true
        resolve()
      }),
    )
    this.#endWithin(graceMs)
  }

  /** The gateway stops: closes idle connections now. */
  stop(graceMs: number): void {
    this.#server.closeIdleConnections()
    this.#endWithin(graceMs)
  }

  #endWithin(graceMs: number): void {
    clearTimeout(this.#timer)
    if (this.#isOver) return
    this.#timer = setTimeout(() => {
      for (const exchange of this.#handler.live) exchange.stop('shutdown')
      setTimeout(() => this.#server.closeAllConnections(), LAST_MS).unref()
    }, graceMs)
  }
}
