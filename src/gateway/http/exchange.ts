/** A request and its response: whether the client is still connected, the time limit, and what is sent. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Writable } from 'node:stream'
import { type RefusalCode, Refusal } from './refusal.ts'
import { type StopSignal, UpstreamFailure } from '../upstream/upstreams.ts'

/** Why a request was stopped before its end. */
export type StopReason =
  | 'client_gone'
  | 'client_stalled'
  | 'request_timeout'
  | 'deadline'
  | 'shutdown'
  | 'part_failed'
  | 'fault'

/** What a client that is still connected is told. */
const TOLD: { readonly [reason in StopReason]?: RefusalCode } = {
  request_timeout: 'ELDR_REQUEST_TIMEOUT',
  deadline: 'ELDR_DEADLINE',
  shutdown: 'ELDR_DRAINING',
  fault: 'ELDR_INTERNAL',
}

export class Exchange implements StopSignal {
  readonly id: string
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** By performance.now(). */
  readonly startedMs = performance.now()
  /** Extra response headers. */
  readonly headers: Record<string, string> = {}
  /** A client that reads nothing for this long while data is waiting is disconnected; 0: never. */
  clientStallMs = 0
  stopped: StopReason | undefined
  /** The gateway's own error that the client was told. */
  told: RefusalCode | undefined
  #failure: UpstreamFailure | undefined
  readonly #listeners = new Set<(reason: UpstreamFailure) => void>()
  #waiting: (() => void)[] = []
  readonly #timer: NodeJS.Timeout

  constructor(
    id: string,
    request: IncomingMessage,
    response: ServerResponse,
    limit: { ms: number; reason: StopReason },
  ) {
    this.id = id
    this.request = request
    this.response = response
    this.#timer = setTimeout(() => this.stop(limit.reason), limit.ms)
    response.once('close', () => {
      clearTimeout(this.#timer)
      if (!response.writableFinished) this.stop('client_gone')
    })
    response.once('timeout', () => {
      this.stop('client_stalled')
      response.destroy()
    })
  }

  /** Removes the time limit. */
  removeTimeLimit(): void {
    clearTimeout(this.#timer)
  }

  /** Ends all work for this request. The first reason counts. */
  stop(reason: StopReason): void {
    if (this.stopped !== undefined) return
    this.stopped = reason
    if (reason === 'shutdown') this.headers['connection'] = 'close'
    this.#failure = new UpstreamFailure('aborted', reason, this.refusal)
    for (const listener of this.#listeners) listener(this.#failure)
    this.#listeners.clear()
  }

  /** What to tell the client of a stopped request; undefined if it has left or is told elsewhere. */
  get refusal(): Refusal | undefined {
    const code = this.stopped && TOLD[this.stopped]
    return code && new Refusal(code, code === 'ELDR_DRAINING' ? { retryAfterSeconds: 1 } : {})
  }

  onStop(listener: (reason: UpstreamFailure) => void): () => void {
    if (this.#failure) queueMicrotask(() => listener(this.#failure!))
    else this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Waits, or returns early if the request is stopped. */
  async pause(ms: number): Promise<void> {
    let unhook: (() => void) | undefined
    await new Promise<void>(resolve => {
      const timer = setTimeout(resolve, ms)
      unhook = this.onStop(() => {
        clearTimeout(timer)
        resolve()
      })
    })
    unhook?.()
  }

  /** Calls back when `by` has drained. The parts of a split request wait together. */
  whenDrained(listener: () => void, by: Writable = this.response): void {
    if (this.#waiting.push(listener) > 1) return
    this.#watchClient()
    by.once('drain', () => {
      this.response.setTimeout(0)
      const waiting = this.#waiting
      this.#waiting = []
      for (const go of waiting) go()
    })
  }

  /** Ends a stream. */
  end(last?: string): void {
    this.response.end(last)
    this.#watchClient()
  }

  /** Sends a whole response, unless the client has left or already has one. */
  answer(status: number, headers: Readonly<Record<string, string>>, body: Buffer | string): void {
    const { response } = this
    if (response.headersSent || response.destroyed) return
    const bytes = typeof body === 'string' ? Buffer.byteLength(body) : body.length
    response.writeHead(status, {
      ...this.headers,
      'x-request-id': this.id,
      ...headers,
      'content-length': String(bytes),
    })
    response.end(this.request.method === 'HEAD' ? undefined : body)
    this.#watchClient()
  }

  /**
   * Node restarts a socket's timer whenever bytes are sent, so a slow client is not mistaken for a stalled
   * one.
   */
  #watchClient(): void {
    if (this.clientStallMs > 0 && this.response.writableLength > 0)
      this.response.setTimeout(this.clientStallMs)
  }
}
