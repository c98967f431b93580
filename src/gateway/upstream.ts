/**
 * Requests to workers. One pool of kept-alive connections a worker; time-outs are ours, for undici's are made for ordinary requests and a
 * prefill may take minutes. Nothing here knows of legs or hand-offs.
 */
import { Pool } from 'undici'
import type { IncomingHttpHeaders } from 'node:http'
import type { ConnectionOptions } from 'node:tls'
import { failureOf, UpstreamCall, UpstreamFailure, type UpstreamHandler } from './upstream-call.ts'

export { type FailureKind, UpstreamCall, UpstreamFailure, type UpstreamHandler } from './upstream-call.ts'

export interface UpstreamRequest {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: Buffer
}

export interface UpstreamAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
  /** When its head came. */
  readonly startedMs: number
}

export interface UpstreamOptions {
  readonly connectMs: number
  readonly idleConnectionMs: number
  readonly tls?: ConnectionOptions
}

export class Upstreams {
  readonly #options: UpstreamOptions
  readonly #pools = new Map<string, Pool>()

  constructor(options: UpstreamOptions) {
    this.#options = options
  }

  /** Only origins of workers come here: what a client sends never chooses one. */
  poolOf(origin: string): Pool {
    let pool = this.#pools.get(origin)
    if (pool === undefined) {
      const { connectMs, idleConnectionMs, tls } = this.#options
      pool = new Pool(origin, {
        connect: { timeout: connectMs, ...tls },
        pipelining: 1,
        keepAliveTimeout: idleConnectionMs,
        keepAliveMaxTimeout: idleConnectionMs,
        headersTimeout: 0,
        bodyTimeout: 0,
      })
      this.#pools.set(origin, pool)
    }
    return pool
  }

  /** Lets go of the connections of a worker that is gone. */
  forget(origin: string): void {
    const pool = this.#pools.get(origin)
    this.#pools.delete(origin)
    void pool?.destroy()
  }

  async close(): Promise<void> {
    await Promise.all([...this.#pools.values()].map(pool => pool.destroy()))
    this.#pools.clear()
  }

  /** The whole answer, at most `maxBytes` of it, within `timeoutMs`. */
  ask(
    origin: string,
    request: UpstreamRequest,
    limits: { timeoutMs: number; maxBytes: number },
    stop?: StopSignal,
  ): Promise<UpstreamAnswer> {
    return new Promise((resolve, reject) => {
      const chunks: Buffer[] = []
      let bytes = 0
      let start: { status: number; headers: IncomingHttpHeaders; startedMs: number } | undefined
      const timer = setTimeout(
        () => call.abort(new UpstreamFailure('timeout', `no answer within ${limits.timeoutMs} ms`)),
        limits.timeoutMs,
      )
      const call = this.open(origin, request, {
        onStart(status, headers) {
          start = { status, headers, startedMs: performance.now() }
        },
        onData(chunk) {
          bytes += chunk.length
          if (bytes > limits.maxBytes) call.abort(new UpstreamFailure('too_large', `an answer of more than ${limits.maxBytes} bytes`))
          else chunks.push(chunk)
        },
        onEnd() {
          settle()
          resolve({ ...start!, body: chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks) })
        },
        onFailure(failure) {
          settle()
          reject(failure)
        },
      })
      const unhook = stop?.onStop(reason => call.abort(reason))
      const settle = () => {
        clearTimeout(timer)
        unhook?.()
      }
    })
  }

  /** Exactly one of `onEnd` and `onFailure` is called, once, after `open` has returned, and nothing after it. */
  open(origin: string, { method, path, headers, body }: UpstreamRequest, to: UpstreamHandler): UpstreamCall {
    const call = new UpstreamCall(to)
    try {
      this.poolOf(origin).dispatch({ method, path, headers, ...(body && { body }) }, call.handler)
    } catch (error) {
      call.fail(failureOf(error))
    }
    call.opened()
    return call
  }
}

/** Something that may end early: a client that leaves, a deadline. */
export interface StopSignal {
  /** Calls at once when it has happened already. Gives the way to take the listener off again. */
  onStop(listener: (reason: UpstreamFailure) => void): () => void
}
