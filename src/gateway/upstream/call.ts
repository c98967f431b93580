/** One request on its way to a worker, between its connection and whoever reads the answer: it ends once, also when its reader throws. */
import type { WorkerConnection } from './connection.ts'
import { UpstreamFailure } from './failure.ts'
import type { ReplyHeaders } from './reply-head.ts'

export interface UpstreamHandler {
  onStart(status: number, headers: ReplyHeaders): void
  /** `frame` is the chunk with its framing, which may be passed on in its place. */
  onData(chunk: Buffer, frame?: Buffer): void
  /** What was read at once has been handed over, and more may come. */
  onPause?(): void
  onEnd(): void
  onFailure(failure: UpstreamFailure): void
}

export class UpstreamCall {
  readonly #to: UpstreamHandler
  #connection: WorkerConnection | undefined
  #opening = true
  #ended = false
  /** Whether the worker may have got it; before that it waits for a connection. */
  sent = false

  constructor(to: UpstreamHandler) {
    this.#to = to
  }

  get ended(): boolean {
    return this.#ended
  }

  /** From now on failures are told as they come: whoever opened it has the call in hand. */
  opened(): void {
    this.#opening = false
  }

  goesBy(connection: WorkerConnection): void {
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

  /** The handler hears of it at once; the connection is closed, which is how the worker hears of it. */
  abort(reason: UpstreamFailure): void {
    if (this.#ended) return
    this.#connection?.drop()
    this.fail(reason)
  }

  /**
   * Tells the worker that its response is no longer wanted, but reads what it has already sent: the call still ends. False if the worker
   * cannot have received the request; the caller then aborts.
   */
  hangUp(): boolean {
    return this.sent && !this.#ended && this.#connection!.hangUp()
  }

  /** The worker is not there: of a request that it has not heard of that is all there is to say. */
  lose(reason: UpstreamFailure): void {
    this.abort(this.sent ? reason : new UpstreamFailure('connect', reason.message))
  }

  fail(failure: UpstreamFailure): void {
    if (this.#ended) return
    this.#ended = true
    if (this.#opening) queueMicrotask(() => this.#to.onFailure(failure))
    else this.#to.onFailure(failure)
  }

  /** The worker is not read until `resume`; what was read already still comes. */
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
