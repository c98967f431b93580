/** Graceful shutdown: running requests may finish within the grace period. */
import type { Server } from 'node:http'
import type { Handler } from './handle.ts'

/** After this, connections that are still open are closed. */
const LAST_MS = 1_000

/** Keeps listening until then: new requests are refused, and load balancers see it at /ready. */
export async function drained(handler: Handler, server: Server, graceMs: number): Promise<void> {
  handler.draining = true
  let grace: NodeJS.Timeout | undefined
  const late = new Promise<void>(resolve => {
    grace = setTimeout(() => {
      for (const exchange of handler.live) exchange.stop('shutdown')
      setTimeout(() => server.closeAllConnections(), LAST_MS).unref()
      resolve()
    }, graceMs)
  })
  await Promise.race([handler.settled(), late])
  await new Promise<void>(resolve => server.close(() => resolve()))
  clearTimeout(grace)
}
