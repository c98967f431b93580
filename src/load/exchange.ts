/**
 * One request of a run. All times are milliseconds of performance.now(), taken when bytes arrive from the
 * socket.
 */
import type { Dispatcher } from 'undici'
import { type Endpoint, headersOf } from './endpoint.ts'
import { errorText, StreamReader } from './stream-reader.ts'

/** Kinds of failure; an HTTP status is part of its kind, such as http_503. */
export type Failure =
  | 'connect'
  | 'reset'
  | 'timeout'
  | 'truncated'
  | 'error_event'
  | 'bad_stream'
  | 'no_tokens'
  | `http_${number}`

export interface Exchange {
  readonly index: number
  /** False for requests of the warm-up and the cool-down. */
  readonly counted: boolean
  readonly plannedMs: number
  readonly sentMs: number
  /** Arrival of the first and the last event with text; NaN without one. */
  readonly firstMs: number
  readonly lastMs: number
  /** When the response ended or was aborted. */
  readonly endedMs: number
  /** Events with text. */
  readonly events: number
  /** Token counts of the server; undefined if it sent none. */
  readonly usage?: { readonly promptTokens: number; readonly completionTokens: number }
  readonly gapsMs: readonly number[]
  /** SHA-256 of the text, if requested. */
  readonly textHash?: string
  /** If requested. */
  readonly text?: string | undefined
  readonly failure?: { readonly kind: Failure; readonly message: string }
}

export interface OutgoingRequest {
  readonly index: number
  readonly counted: boolean
  readonly plannedMs: number
  readonly body: string
  readonly id: string
  readonly timeoutMs: number
  /** Hash the text, to compare it with that of another run. */
  readonly hashText?: boolean
  readonly keepText?: boolean
  /** Called after each chunk with the number of events with text in it. */
  readonly onEvents: (events: number) => void
}

const MAX_ERROR_BYTES = 16 << 10

/**
 * Sends a request. Calls `onEnd` once, never before it returns. Returns a function that aborts the request.
 */
export function exchange(
  endpoint: Endpoint,
  outgoing: OutgoingRequest,
  onEnd: (result: Exchange) => void,
): () => void {
  const call = new Call(endpoint, outgoing, onEnd)
  call.start()
  return () => call.abort('reset', 'the run was stopped')
}

class Call implements Dispatcher.DispatchHandler {
  readonly #endpoint: Endpoint
  readonly #outgoing: OutgoingRequest
  readonly #onEnd: (result: Exchange) => void
  readonly #reader: StreamReader
  #sentMs = NaN
  #status = 0
  #isStream = false
  /** Body of a response that is not a stream. */
  #errorBody: Buffer[] = []
  #errorBytes = 0
  #failure: Exchange['failure']
  #controller: Dispatcher.DispatchController | undefined
  #timer: NodeJS.Timeout | undefined
  #over = false

  constructor(endpoint: Endpoint, outgoing: OutgoingRequest, onEnd: (result: Exchange) => void) {
    this.#endpoint = endpoint
    this.#outgoing = outgoing
    this.#onEnd = onEnd
    this.#reader = new StreamReader(endpoint.spec.api, {
      hash: outgoing.hashText === true,
      text: outgoing.keepText === true,
    })
  }

  start(): void {
    const { pool, path, spec } = this.#endpoint
    const { body, id, timeoutMs } = this.#outgoing
    this.#timer = setTimeout(
      () => this.abort('timeout', `not finished within ${timeoutMs / 1000} s`),
      timeoutMs,
    )
    this.#sentMs = performance.now()
    pool.dispatch({ method: 'POST', path, headers: [...headersOf(spec), 'x-request-id', id], body }, this)
  }

  abort(kind: Failure, message: string): void {
    this.#failure ??= { kind, message }
    // Before a connection exists there is nothing to abort: the request ends here and later callbacks are
    // ignored.
    this.#controller?.abort(new Error(message))
    this.#finish()
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#over) controller.abort(new Error('aborted'))
  }

  onResponseStart(
    _: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    this.#status = status
    this.#isStream = status === 200 && /^text\/event-stream\b/i.test(String(headers['content-type']))
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    const nowMs = performance.now()
    if (this.#over) return
    if (this.#isStream) {
      const before = this.#reader.events
      this.#reader.push(chunk, nowMs)
      this.#outgoing.onEvents(this.#reader.events - before)
    } else if (this.#errorBytes < MAX_ERROR_BYTES) {
      this.#errorBody.push(chunk)
      this.#errorBytes += chunk.length
    }
  }

  onResponseEnd(): void {
    this.#reader.end(performance.now())
    this.#failure ??= this.#responseFailure()
    this.#finish()
  }

  onResponseError(_: Dispatcher.DispatchController | undefined, error: Error): void {
    this.#failure ??= this.#connectionFailure(error)
    this.#finish()
  }

  #responseFailure(): Exchange['failure'] {
    const { error, garbage, done, finished, events } = this.#reader
    if (this.#status !== 200)
      return {
        kind: `http_${this.#status}`,
        message: bodyErrorText(Buffer.concat(this.#errorBody).toString('utf8')),
      }
    if (!this.#isStream) return { kind: 'bad_stream', message: 'the response is not an event stream' }
    if (error !== undefined) return { kind: 'error_event', message: error }
    if (garbage !== undefined) return { kind: 'bad_stream', message: garbage }
    if (!done && !finished)
      return { kind: 'truncated', message: 'the stream ended without [DONE] and without a finish reason' }
    return events === 0 ? { kind: 'no_tokens', message: 'the stream had no text' } : undefined
  }

  #connectionFailure(error: NodeJS.ErrnoException): Exchange['failure'] {
    const message = error.message || String(error.code)
    if (this.#status !== 0) return { kind: 'truncated', message }
    const isConnect =
      error.code === 'UND_ERR_CONNECT_TIMEOUT' ||
      /^(ECONNREFUSED|ENOTFOUND|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|ETIMEDOUT|ERR_TLS|ERR_SSL|EMFILE|EADDRNOTAVAIL|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO)/.test(
        error.code ?? '',
      )
    return { kind: isConnect ? 'connect' : 'reset', message }
  }

  #finish(): void {
    if (this.#over) return
    this.#over = true
    clearTimeout(this.#timer)
    const { index, counted, plannedMs } = this.#outgoing
    const { firstMs, lastMs, events, usage, gapsMs } = this.#reader
    const result: Exchange = {
      index,
      counted,
      plannedMs,
      sentMs: this.#sentMs,
      firstMs,
      lastMs,
      endedMs: performance.now(),
      events,
      gapsMs,
      usage,
      textHash: this.#reader.digest(),
      text: this.#reader.text,
      failure: this.#failure,
    }
    queueMicrotask(() => this.#onEnd(result))
  }
}

/** The error message of a body in one line; knows the forms of OpenAI and FastAPI. */
export function bodyErrorText(text: string): string {
  try {
    const body = JSON.parse(text) as { error?: unknown; detail?: unknown; message?: unknown }
    return errorText(body?.error ?? body?.detail ?? body?.message ?? body)
  } catch {
    return errorText(text)
  }
}
