/**
 * HTTP client for workers. The caller sets the timeouts. It knows nothing of prefill, decode or hand-offs.
 */
import { UpstreamCall, type UpstreamHandler } from './call.ts'
import { type StopSignal, UpstreamFailure } from './failure.ts'
import { ConnectionPool, type PoolOptions, type WorkerTraffic } from './pool.ts'
import type { ReplyHeaders } from './reply-head.ts'

export type { UpstreamCall, UpstreamHandler } from './call.ts'
export { type FailureKind, type StopSignal, UpstreamFailure } from './failure.ts'
export type { ReplyHeaders } from './reply-head.ts'

export interface UpstreamRequest {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: Buffer
}

export interface UpstreamResponse {
  readonly status: number
  readonly headers: ReplyHeaders
  readonly body: Buffer
  /** When the head arrived. */
  readonly startedMs: number
}

export interface AskLimits {
  readonly timeoutMs: number
  readonly maxBytes: number
  /**
   * Receives a response that the worker sent before it learned that the caller gave up. With it the
   * connection is read for a while after a stop or a timeout; without it the connection is dropped at once.
   */
  readonly onLate?: (answer: UpstreamResponse) => void
}

/** How long a worker has to notice that the caller gave up. */
const LATE_MS = 5_000

export class Upstreams {
  readonly #options: PoolOptions
  readonly #pools = new Map<string, ConnectionPool>()

  constructor(options: PoolOptions) {
    this.#options = options
  }

  /** Undefined for a worker that never had a request. */
  trafficOf(origin: string): WorkerTraffic | undefined {
    return this.#pools.get(origin)?.traffic()
  }

  /** Closes all connections to a removed worker. */
  forget(origin: string): void {
    this.#pools.get(origin)?.close()
    this.#pools.delete(origin)
  }

  close(): void {
    for (const pool of this.#pools.values()) pool.close()
    this.#pools.clear()
  }

  /**
   * Returns the complete response. Fails if it is larger than `maxBytes` or takes longer than `timeoutMs`.
   */
  ask(
    origin: string,
    request: UpstreamRequest,
    limits: AskLimits,
    ...stops: readonly StopSignal[]
  ): Promise<UpstreamResponse> {
    return new Promise((resolve, reject) => {
      const chunks: Buffer[] = []
      let bytes = 0
      let gaveUp = false
      let start: { status: number; headers: ReplyHeaders; startedMs: number } | undefined
      const call = this.open(origin, request, {
        onStart(status, headers) {
          start = { status, headers, startedMs: performance.now() }
        },
        onData(chunk) {
          bytes += chunk.length
          if (bytes > limits.maxBytes)
            call.abort(new UpstreamFailure('too_large', `response larger than ${limits.maxBytes} bytes`))
          else chunks.push(chunk)
        },
        onEnd() {
          settle()
          const answer = { ...start!, body: chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks) }
          if (gaveUp) limits.onLate!(answer)
          else resolve(answer)
        },
        onFailure(failure) {
          settle()
          reject(failure)
        },
      })
      const giveUp = (reason: UpstreamFailure) => {
        if (limits.onLate === undefined || !call.hangUp()) return call.abort(reason)
        settle()
        gaveUp = true
        timer = setTimeout(() => call.abort(reason), LATE_MS)
        reject(reason)
      }
      let timer = setTimeout(
        () => giveUp(new UpstreamFailure('timeout', `no response within ${limits.timeoutMs} ms`)),
        limits.timeoutMs,
      )
      const unhooks = stops.map(stop => stop.onStop(giveUp))
      const settle = () => {
        clearTimeout(timer)
        for (const unhook of unhooks) unhook()
      }
    })
  }

  /**
   * Calls exactly one of `onEnd` and `onFailure`, once, after `open` has returned, and nothing after it.
   * `origin` is always that of a registered worker; a client's input never selects it.
   */
  open(origin: string, request: UpstreamRequest, to: UpstreamHandler): UpstreamCall {
    let pool = this.#pools.get(origin)
    if (pool === undefined) this.#pools.set(origin, (pool = new ConnectionPool(origin, this.#options)))
    const call = new UpstreamCall(to)
    pool.run(call, headOf(pool.authority, request), request.body)
    call.opened()
    return call
  }
}

const SAFE = /^[\t\x20-\x7e\x80-\xff]*$/

/**
 * Throws on characters that would allow header injection. Client input has been checked before; this is a
 * second check.
 */
function headOf(authority: string, { method, path, headers, body }: UpstreamRequest): string {
  let head = `${method} ${safe(path)} HTTP/1.1\r\nhost: ${authority}\r\n`
  for (const name in headers) head += `${name}: ${safe(headers[name]!)}\r\n`
  return body === undefined ? `${head}\r\n` : `${head}content-length: ${body.length}\r\n\r\n`
}

function safe(text: string): string {
  if (!SAFE.test(text)) throw new Error('header or path cannot be sent: invalid characters')
  return text
}
