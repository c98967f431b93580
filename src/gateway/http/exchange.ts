/** One client and its request: whether it is still there, when its time is up, and what it is told. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Writable } from 'node:stream'
import { type RefusalCode, Refusal } from './refusal.ts'
import { type StopSignal, UpstreamFailure } from '../upstream/upstreams.ts'

/** Why a request stopped before its end. */
export type StopReason =
  | 'client_gone'
  | 'client_stalled'
  | 'request_timeout'
  | 'deadline'
  | 'shutdown'
  | 'part_failed'
  | 'fault'

/** What a client is told that is there to hear it. */
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
  /** Of performance.now(). */
  readonly startedMs = performance.now()
  /** Extra headers of the answer. */
  readonly headers: Record<string, string> = {}
  /** A client that takes no byte for so long while there are some for it is let go; 0 is never. */
  clientStallMs = 0
  stopped: StopReason | undefined
  /** The error of ours that its client was told. */
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

  /** It may take as long as its client wishes. */
  takeAnyTime(): void {
    clearTimeout(this.#timer)
  }

  /** Ends what is under way for this request. The first reason counts. */
  stop(reason: StopReason): void {
    if (this.stopped !== undefined) return
    this.stopped = reason
    if (reason === 'shutdown') this.headers['connection'] = 'close'
    this.#failure = new UpstreamFailure('aborted', reason, this.refusal)
    for (const listener of this.#listeners) listener(this.#failure)
    this.#listeners.clear()
  }

  /** What the client of a stopped request is to be told; undefined when nobody is there, or somebody else tells. */
  get refusal(): Refusal | undefined {
    const code = this.stopped && TOLD[this.stopped]
    return code && new Refusal(code, code === 'ELDR_DRAINING' ? { retryAfterSeconds: 1 } : {})
  }

  onStop(listener: (reason: UpstreamFailure) => void): () => void {
    if (this.#failure) queueMicrotask(() => listener(this.#failure!))
    else this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Waits, unless the request stops before. */
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

  /** Calls when the client has taken what was written, into `by`. The parts of a split request wait together. */
  whenTaken(listener: () => void, by: Writable = this.response): void {
    if (this.#waiting.push(listener) > 1) return
    this.#watchClient()
    by.once('drain', () => {
      this.response.setTimeout(0)
      const waiting = this.#waiting
      this.#waiting = []
      for (const go of waiting) go()
    })
  }

  /** The end of a stream. */
  end(last?: string): void {
    this.response.end(last)
    this.#watchClient()
  }

  /** A whole answer. Nothing is sent to a client that is gone, or that has got an answer already. */
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

  /** Node's timer of a socket begins anew when bytes have gone, though not all have: a slow client is not taken for one that stalls. */
  #watchClient(): void {
    if (this.clientStallMs > 0 && this.response.writableLength > 0)
      this.response.setTimeout(this.clientStallMs)
  }
}
