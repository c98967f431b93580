/**
 * One connection to Redis or Valkey, and a second one that listens: a connection that has subscribed may not ask in every version of the
 * protocol. It is opened once and ends once; who wants another opens another.
 */
import { readFileSync } from 'node:fs'
import { createClient, ErrorReply, RESP_TYPES } from '@redis/client'

export interface StoreAddress {
  readonly url: string
  /** Authority of the store's certificate, PEM. */
  readonly caFile?: string
  readonly channel: string
  /** The store must have answered within this time, whatever it is asked. */
  readonly timeoutMs: number
}

export interface StoreSession {
  /** Texts in an answer are buffers. Rejects with `StoreRefusal` where the store says no, else the session has ended. */
  ask(command: readonly (string | Buffer)[]): Promise<unknown>
  /** Resolves with the reason, whoever ended it. */
  readonly ended: Promise<string>
  end(reason: string): void
}

/** The store's own words; the connection is well. */
export class StoreRefusal extends Error {}

/** Never connected. The library makes a class of all commands, which takes tens of milliseconds: when this is loaded, and not again. */
const template = createClient<{}, {}, {}, 2>({ RESP: 2 })

/** Rejects with the reason. `heard` must not throw. */
export async function openSession(
  address: StoreAddress,
  heard: (bytes: Buffer) => void,
  signal: AbortSignal,
): Promise<StoreSession> {
  const { url, caFile, channel, timeoutMs } = address
  const options = {
    url: url.replace(/^valkey/, 'redis'),
    disableOfflineQueue: true,
    // What would else be two more questions to the store at each start.
    disableClientInfo: true,
    socket: {
      connectTimeout: timeoutMs,
      reconnectStrategy: false as const,
      ...(caFile !== undefined && { tls: true as const, ca: readFileSync(caFile) }),
    },
  }
  const clients = [template.duplicate(options), template.duplicate(options)] as const
  const [asker, listener] = clients
  let over: (reason: string) => void
  const ended = new Promise<string>(resolve => {
    over = resolve
  })
  const waiting = new Set<(error: Error) => void>()
  const end = (reason: string) => {
    over(reason)
    for (const reject of waiting) reject(new Error(reason))
    for (const client of clients) if (client.isOpen) client.destroy()
  }
  for (const client of clients) {
    client.on('error', (error: Error) => end(wordsOf(error)))
    client.on('end', () => end('the connection was closed'))
  }
  const stop = () => end('stopped')
  signal.addEventListener('abort', stop, { once: true })
  void ended.then(() => signal.removeEventListener('abort', stop))

  /** A store that hangs must not be waited for: the session ends. */
  function inTime<T>(work: Promise<T>): Promise<T> {
    const timer = setTimeout(() => end(`no answer within ${timeoutMs} ms`), timeoutMs).unref()
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
    await inTime(listener.subscribe(channel, heard, true))
  } catch (error) {
    end(wordsOf(error))
    throw new Error(await ended, { cause: error })
  }
  const typeMapping = { [RESP_TYPES.BLOB_STRING]: Buffer }
  return {
    ended,
    end,
    ask: command =>
      inTime(asker.sendCommand([...command], { typeMapping })).catch((error: unknown) => {
        throw error instanceof ErrorReply ? new StoreRefusal(error.message) : error
      }),
  }
}

/** Errors of several addresses have no words of their own. */
function wordsOf(error: unknown): string {
  const [first] = error instanceof AggregateError ? (error.errors as unknown[]) : [error]
  return first instanceof Error ? first.message || first.name : String(first)
}
