/**
 * A free port, for a server that must know its port before it starts. It is below the ephemeral range: from
 * there the kernel would soon give it to a connection or to a server of another test.
 */
import { once } from 'node:events'
import { createServer } from 'node:net'

const [FIRST, COUNT] = [20_000, 12_000]
/** Ports that this process has handed out. */
const given = new Set<number>()

export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST + Math.floor(Math.random() * COUNT)
    if (given.has(port)) continue
    const server = createServer().listen(port, '127.0.0.1')
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false, // taken: try another one
    )
    if (!isFree) continue
    await once(server.close(), 'close')
    given.add(port)
    return port
  }
}
