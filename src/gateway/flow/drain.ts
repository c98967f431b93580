/** The end of a process that serves requests: what is under way may end, for so long. */
import type { Server } from 'node:http'
import type { Handler } from './handle.ts'

/** Of connections that have not gone by themselves. */
const LAST_MS = 1_000

/** Until then it listens: whoever comes is told to ask another, and a load balancer sees it at /ready. */
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
