/** One request on its way to a worker, between undici and whoever reads the answer: it ends once, also when its reader throws. */
import type { IncomingHttpHeaders } from 'node:http'
import type { Dispatcher } from 'undici'

/**
 * Why a worker gave no answer, or none that can be used: a status of 429 or 5xx, an error event in its stream, a stream that ends without
 * its end. `aborted`: by us, and `fault`: something threw while the answer was read; neither is the worker's doing.
 */
export type FailureKind =
  | 'connect'
  | 'reset'
  | 'timeout'
  | 'garbage'
  | 'too_large'
  | 'status'
  | 'error_event'
  | 'early_end'
  | 'aborted'
  | 'fault'

export class UpstreamFailure extends Error {
  readonly kind: FailureKind

  constructor(kind: FailureKind, message: string, cause?: unknown) {
    super(message, { cause })
    this.kind = kind
  }
}

export interface UpstreamHandler {
  onStart(status: number, headers: IncomingHttpHeaders): void
  onData(chunk: Buffer): void
  onEnd(): void
  onFailure(failure: UpstreamFailure): void
}

export class UpstreamCall {
  readonly handler: Dispatcher.DispatchHandler
  readonly #to: UpstreamHandler
  #controller: Dispatcher.DispatchController | undefined
  #aborted: UpstreamFailure | undefined
  #opening = true
  /** The worker closes the connection after this answer. */
  #closing = false
  #ended = false

  constructor(to: UpstreamHandler) {
    this.#to = to
    this.handler = {
      onRequestStart: controller => {
        this.#controller = controller
        if (this.#aborted) controller.abort(this.#aborted)
      },
      onResponseStart: (_, status, headers) => {
        if (this.#ended) return
        this.#closing = isLast(headers)
        try {
          to.onStart(status, headers)
        } catch (error) {
          this.abort(faultOf(error))
        }
      },
      onResponseData: (_, chunk) => {
        if (this.#ended) return
        try {
          to.onData(chunk)
        } catch (error) {
          this.abort(faultOf(error))
        }
      },
      onResponseEnd: () => {
        if (this.#ended) return
        this.#ended = true
        try {
          to.onEnd()
        } catch (error) {
          to.onFailure(faultOf(error))
        }
      },
      onResponseError: (_, error) => this.fail(this.#aborted ?? failureOf(error)),
    }
  }

  /** Whether the worker may have got it; before that it waits for a connection. */
  get sent(): boolean {
    return this.#controller !== undefined
  }

  /** From now on failures are told as they come: whoever opened it has the call in hand. */
  opened(): void {
    this.#opening = false
  }

  /** The handler hears of it at once; the connection is closed, which is how the worker hears of it. */
  abort(reason: UpstreamFailure): void {
    if (this.#ended || this.#aborted) return
    this.#aborted = reason
    this.#controller?.abort(reason)
    this.fail(reason)
  }

  fail(failure: UpstreamFailure): void {
    if (this.#ended) return
    this.#ended = true
    if (this.#opening) queueMicrotask(() => this.#to.onFailure(failure))
    else this.#to.onFailure(failure)
  }

  /**
   * False when it cannot be held: undici 7 ends the process with a failed assertion when a connection that is not kept alive breaks while
   * it is held (nodejs/undici#5360).
   */
  pause(): boolean {
    if (this.#closing) return false
    if (!this.#ended) this.#controller?.pause()
    return true
  }

  resume(): void {
    if (!this.#ended) this.#controller?.resume()
  }
}

/** Whether an answer is the last of its connection. */
function isLast(headers: IncomingHttpHeaders): boolean {
  const framed = headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined
  return !framed || /\bclose\b/i.test(headers.connection ?? '')
}

function faultOf(error: unknown): UpstreamFailure {
  return new UpstreamFailure('fault', String(error), error)
}

const CONNECT = new Set(['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'ENOTFOUND', 'EAI_AGAIN', 'ETIMEDOUT', 'UND_ERR_CONNECT_TIMEOUT'])

export function failureOf(error: unknown): UpstreamFailure {
  if (error instanceof UpstreamFailure) return error
  const { code = '', name = '', message = String(error) } = (error ?? {}) as { code?: string; name?: string; message?: string }
  if (CONNECT.has(code) || code.startsWith('ERR_TLS') || code.includes('CERT')) return new UpstreamFailure('connect', message, error)
  return new UpstreamFailure(name === 'HTTPParserError' || code === 'UND_ERR_HEADERS_OVERFLOW' ? 'garbage' : 'reset', message, error)
}
