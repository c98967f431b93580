/** One request of a run, from its planned moment to its end. Times are taken when the socket's bytes come, on one clock, in milliseconds. */
import type { Dispatcher } from 'undici'
import { type Endpoint, headersOf } from './endpoint.ts'
import { errorText, StreamReader } from './stream-reader.ts'

/** How requests fail; a status is named by its number: http_503. */
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
  /** Whether it counts, or is part of the warm-up or the cool-down. */
  readonly counted: boolean
  readonly plannedMs: number
  readonly sentMs: number
  /** Of the first and the last event with text; NaN without one. */
  readonly firstMs: number
  readonly lastMs: number
  /** When the answer was over, or was given up. */
  readonly endedMs: number
  /** Events with text. */
  readonly events: number
  /** As the server counts them; undefined when it does not say. */
  readonly usage?: { readonly promptTokens: number; readonly completionTokens: number }
  readonly gapsMs: readonly number[]
  /** SHA-256 of the text, where it was asked for. */
  readonly textHash?: string
  readonly failure?: { readonly kind: Failure; readonly message: string }
}

export interface ToSend {
  readonly index: number
  readonly counted: boolean
  readonly plannedMs: number
  readonly body: string
  readonly id: string
  readonly timeoutMs: number
  /** Whether the text is hashed, to hold it against that of another run. */
  readonly hashText?: boolean
  /** After each piece of a stream: how many events it ended. */
  readonly onEvents: (events: number) => void
}

const MOST_ERROR_BYTES = 16 << 10

/** Sends a request; `ended` is called once, never before this returns. Gives what gives the request up. */
export function exchange(endpoint: Endpoint, what: ToSend, ended: (result: Exchange) => void): () => void {
  const call = new Call(endpoint, what, ended)
  call.start()
  return () => call.giveUp('reset', 'the run was stopped')
}

class Call implements Dispatcher.DispatchHandler {
  readonly #endpoint: Endpoint
  readonly #what: ToSend
  readonly #ended: (result: Exchange) => void
  readonly #reader: StreamReader
  #sentMs = NaN
  #status = 0
  #isStream = false
  /** Of an answer that is none: what it says. */
  #said: Buffer[] = []
  #saidBytes = 0
  #failure: Exchange['failure']
  #controller: Dispatcher.DispatchController | undefined
  #timer: NodeJS.Timeout | undefined
  #over = false

  constructor(endpoint: Endpoint, what: ToSend, ended: (result: Exchange) => void) {
    this.#endpoint = endpoint
    this.#what = what
    this.#ended = ended
    this.#reader = new StreamReader(endpoint.spec.api, { hash: what.hashText === true })
  }

  start(): void {
    const { pool, path, spec } = this.#endpoint
    const { body, id, timeoutMs } = this.#what
    this.#timer = setTimeout(() => this.giveUp('timeout', `no end within ${timeoutMs / 1000} s`), timeoutMs)
    this.#sentMs = performance.now()
    pool.dispatch({ method: 'POST', path, headers: [...headersOf(spec), 'x-request-id', id], body }, this)
  }

  giveUp(kind: Failure, message: string): void {
    this.#failure ??= { kind, message }
    // Before there is a connection nothing can be aborted: then the request ends here, and what comes later is not heard.
    this.#controller?.abort(new Error(message))
    this.#finish()
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#over) controller.abort(new Error('given up'))
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
      this.#what.onEvents(this.#reader.events - before)
    } else if (this.#saidBytes < MOST_ERROR_BYTES) {
      this.#said.push(chunk)
      this.#saidBytes += chunk.length
    }
  }

  onResponseEnd(): void {
    this.#reader.end(performance.now())
    this.#failure ??= this.#wrongWithAnswer()
    this.#finish()
  }

  onResponseError(_: Dispatcher.DispatchController | undefined, error: Error): void {
    this.#failure ??= this.#failureOf(error)
    this.#finish()
  }

  #wrongWithAnswer(): Exchange['failure'] {
    const { error, garbage, done, finished, events } = this.#reader
    if (this.#status !== 200)
      return { kind: `http_${this.#status}`, message: saidIn(Buffer.concat(this.#said).toString('utf8')) }
    if (!this.#isStream) return { kind: 'bad_stream', message: 'an answer that is no event stream' }
    if (error !== undefined) return { kind: 'error_event', message: error }
    if (garbage !== undefined) return { kind: 'bad_stream', message: garbage }
    if (!done && !finished)
      return { kind: 'truncated', message: 'the stream ended without [DONE] and without a finish reason' }
    return events === 0 ? { kind: 'no_tokens', message: 'the stream had no text' } : undefined
  }

  #failureOf(error: NodeJS.ErrnoException): Exchange['failure'] {
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
    const { index, counted, plannedMs } = this.#what
    const { firstMs, lastMs, events, usage, gapsMs } = this.#reader
    const textHash = this.#reader.digest()
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
      ...(usage && { usage }),
      ...(textHash !== undefined && { textHash }),
      ...(this.#failure && { failure: this.#failure }),
    }
    queueMicrotask(() => this.#ended(result))
  }
}

/** An error body in one line: OpenAI's, FastAPI's, or whatever it is. */
export function saidIn(text: string): string {
  try {
    const body = JSON.parse(text) as { error?: unknown; detail?: unknown; message?: unknown }
    return errorText(body?.error ?? body?.detail ?? body?.message ?? body)
  } catch {
    return errorText(text)
  }
}
