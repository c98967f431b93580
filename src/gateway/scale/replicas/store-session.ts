/**
 * A connection to Redis or Valkey for commands, and a second one for the subscription, because RESP 2 allows
 * no commands on a subscribed connection. A session ends once and is not reopened.
 */
import { readFileSync } from 'node:fs'
import { createClient, ErrorReply, RESP_TYPES } from '@redis/client'

export interface StoreAddress {
  readonly url: string
  /** CA of the store's certificate, PEM. */
  readonly caFile?: string
  readonly channel: string
  /** Timeout of every command. */
  readonly timeoutMs: number
}

export interface StoreSession {
  /**
   * Strings in a reply are buffers. Rejects with `StoreRefusal` if the store refuses; other errors end the
   * session.
   */
  ask(command: readonly (string | Buffer)[]): Promise<unknown>
  /** Resolves with the reason, whichever side ended it. */
  readonly ended: Promise<string>
  end(reason: string): void
}

/** An error reply of the store. The connection still works. */
export class StoreRefusal extends Error {}

/** Never connected. Building the client class takes tens of milliseconds, so it is done once, at load. */
const template = createClient<{}, {}, {}, 2>({ RESP: 2 })

/** Rejects with the reason. `received` must not throw. */
export async function openSession(
  address: StoreAddress,
  received: (bytes: Buffer) => void,
  signal: AbortSignal,
): Promise<StoreSession> {
  const { url, caFile, channel, timeoutMs } = address
  const options = {
    url: url.replace(/^valkey/, 'redis'),
    disableOfflineQueue: true,
    // Saves two commands at each start.
    disableClientInfo: true,
    socket: {
      connectTimeout: timeoutMs,
      reconnectStrategy: false as const,
      // Without a file, the protocol of the URL decides.
      tls: caFile === undefined ? undefined : (true as const),
      ca: caFile === undefined ? undefined : readFileSync(caFile),
    },
  }
  const clients = [template.duplicate(options), template.duplicate(options)] as const
  const [commands, subscription] = clients
  let resolveEnded: (reason: string) => void
  const ended = new Promise<string>(resolve => {
    resolveEnded = resolve
  })
  const waiting = new Set<(error: Error) => void>()
  const end = (reason: string) => {
    resolveEnded(reason)
    for (const reject of waiting) reject(new Error(reason))
    for (const client of clients) if (client.isOpen) client.destroy()
  }
  for (const client of clients) {
    client.on('error', (error: Error) => end(messageOf(error)))
    client.on('end', () => end('the connection was closed'))
  }
  const stop = () => end('stopped')
  signal.addEventListener('abort', stop, { once: true })
  void ended.then(() => signal.removeEventListener('abort', stop))

  /** Ends the session if the store does not respond in time. */
  function inTime<T>(work: Promise<T>): Promise<T> {
    const timer = setTimeout(() => end(`no response within ${timeoutMs} ms`), timeoutMs).unref()
    return new Promise<T>((resolve, reject) => {
      const done = () => {
        clearTimeout(timer)
        waiting.delete(reject)
      }
      waiting.add(reject)
      work.finally(done).then(resolve, reject)
    })
  }
  try {
    await inTime(Promise.all(clients.map(client => client.connect())))
    await inTime(subscription.subscribe(channel, received, true))
  } catch (error) {
    end(messageOf(error))
    throw new Error(await ended, { cause: error })
  }
  const typeMapping = { [RESP_TYPES.BLOB_STRING]: Buffer }
  return {
    ended,
    end,
    ask: command =>
      inTime(commands.sendCommand([...command], { typeMapping })).catch((error: unknown) => {
        throw error instanceof ErrorReply ? new StoreRefusal(error.message) : error
      }),
  }
}

/** An AggregateError of several addresses has no message of its own. */
function messageOf(error: unknown): string {
  const [first] = error instanceof AggregateError ? (error.errors as unknown[]) : [error]
  return first instanceof Error ? first.message || first.name : String(first)
}
