/**
 * One request to a worker, between its connection and the reader of the response. It ends exactly once, even
 * if the reader throws.
 */
import type { WorkerConnection } from './connection.ts'
import { UpstreamFailure } from './failure.ts'
import type { ReplyHeaders } from './reply-head.ts'

export interface UpstreamHandler {
  onStart(status: number, headers: ReplyHeaders): void
  /** `frame`: the chunk with its chunked framing, which may be forwarded instead. */
  onData(chunk: Buffer, frame?: Buffer): void
  /** All bytes of one read have been delivered; more may follow. */
  onPause?(): void
  onEnd(): void
  onFailure(failure: UpstreamFailure): void
}

export class UpstreamCall {
  readonly #to: UpstreamHandler
  #connection: WorkerConnection | undefined
  #opening = true
  #ended = false
  /** True once the worker may have received the request; before, it waits for a connection. */
  sent = false

  constructor(to: UpstreamHandler) {
    this.#to = to
  }

  get ended(): boolean {
    return this.#ended
  }

  /** From now on failures are reported synchronously: `open` has returned the call. */
  opened(): void {
    this.#opening = false
  }

  assign(connection: WorkerConnection): void {
    this.#connection = connection
  }

  start(status: number, headers: ReplyHeaders): void {
    if (this.#ended) return
    try {
      this.#to.onStart(status, headers)
    } catch (error) {
      this.abort(faultOf(error))
    }
  }

  data(chunk: Buffer, frame: Buffer | undefined): void {
    if (this.#ended) return
    try {
      this.#to.onData(chunk, frame)
    } catch (error) {
      this.abort(faultOf(error))
    }
  }

  paused(): void {
    if (this.#ended || this.#to.onPause === undefined) return
    try {
      this.#to.onPause()
    } catch (error) {
      this.abort(faultOf(error))
    }
  }

  end(): void {
    if (this.#ended) return
    this.#ended = true
    try {
      this.#to.onEnd()
    } catch (error) {
      this.#to.onFailure(faultOf(error))
    }
  }

  /** Notifies the handler at once and closes the connection, which tells the worker. */
  abort(reason: UpstreamFailure): void {
    if (this.#ended) return
    this.#connection?.drop()
    this.fail(reason)
  }

  /**
   * Tells the worker that its response is no longer wanted, but reads what it has already sent: the call
   * still ends. False if the worker cannot have received the request; the caller then aborts.
   */
  hangUp(): boolean {
    return this.sent && !this.#ended && this.#connection!.hangUp()
  }

  /** The worker is gone. A request that was not sent yet fails as a connection failure. */
  lose(reason: UpstreamFailure): void {
    this.abort(this.sent ? reason : new UpstreamFailure('connect', reason.message))
  }

  fail(failure: UpstreamFailure): void {
    if (this.#ended) return
    this.#ended = true
    if (this.#opening) queueMicrotask(() => this.#to.onFailure(failure))
    else this.#to.onFailure(failure)
  }

  /** Stops reading from the worker until `resume`. Data that was already read is still delivered. */
  pause(): void {
    if (!this.#ended) this.#connection?.pause()
  }

  resume(): void {
    if (!this.#ended) this.#connection?.resume()
  }
}

function faultOf(error: unknown): UpstreamFailure {
  return new UpstreamFailure('fault', String(error), error)
}
