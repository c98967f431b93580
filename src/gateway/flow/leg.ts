/**
 * One request to one worker, whose response goes to a sink. The sink gets nothing before the first event of a
 * good response, so until then the request can be retried elsewhere. After that the leg makes sure that the
 * sink learns how the stream ended.
 */
import { Refusal } from '../http/refusal.ts'
import type { Attempt, RequestEvents } from '../observe/request-observer.ts'
import {
  type FailureKind,
  type ReplyHeaders,
  type StopSignal,
  type UpstreamCall,
  UpstreamFailure,
  type UpstreamHandler,
  type UpstreamRequest,
  type Upstreams,
} from '../upstream/upstreams.ts'
import type { ResponseRules, StreamEvents } from './response-rules.ts'
import type { Sink } from './sink.ts'

/** A non-streamed response is collected; none is larger than this. */
const MAX_BODY_BYTES = 64 << 20
/** From [DONE] to the end of the response. */
const AFTER_DONE_MS = 1_000
const END_OF_EVENT = Buffer.from('\n\n')

export interface LegLimits {
  /** To the first event of a stream, or to the end of a non-streamed response. */
  readonly firstByteMs: number
  readonly betweenTokensMs: number
}

export interface LegPlan {
  readonly rules: ResponseRules
  readonly limits: LegLimits
  readonly sink: Sink
  /** Ends the leg: the client left, or its time is up. */
  readonly stop: StopSignal
  /** Fires when the worker is lost, which ends a leg that has not started to stream, or can be resumed. */
  readonly lost: StopSignal
  /** Whether another worker can go on with a stream that has begun. */
  readonly movable?: (() => boolean) | undefined
  readonly events: RequestEvents
  readonly attempt: Attempt
}

export type LegEnd =
  /** The sink has the response, complete. */
  | { readonly kind: 'served'; readonly status: number }
  /** The worker failed, or seems to have. */
  | {
      readonly kind: 'failed'
      readonly failure: UpstreamFailure
      readonly status?: number | undefined
      /** The sink has had bytes, and knows that there will be no more. */
      readonly begun: boolean
      /** The worker may have seen the request. */
      readonly sent: boolean
    }
  /** The client left, or its time is up. */
  | { readonly kind: 'stopped'; readonly begun: boolean; readonly sent: boolean }

/** Rejects only if the gateway itself fails. */
export function runLeg(
  upstreams: Upstreams,
  origin: string,
  request: UpstreamRequest,
  plan: LegPlan,
): Promise<LegEnd> {
  return new Promise((resolve, reject) =>
    new RunningLeg(plan, resolve, reject).run(upstreams, origin, request),
  )
}

class RunningLeg implements UpstreamHandler {
  readonly #plan: LegPlan
  readonly #sink: Sink
  readonly #resolve: (end: LegEnd) => void
  readonly #reject: (error: unknown) => void
  /** Present while a stream is read. */
  #stream: StreamEvents | undefined
  #call!: UpstreamCall
  #unhook = () => {}
  #stopped: UpstreamFailure | undefined
  /**
   * To the first event, then between events; cleared while the client is slow, which is not the worker's
   * fault.
   */
  #timer: NodeJS.Timeout | undefined
  /** When bytes came last. The timer checks it when due, which costs less than a new timer per token. */
  #lastMs = 0
  #reportedEvents = 0
  #status = 0
  #headers: ReplyHeaders = {}
  #begun = false
  #held = false
  #ended = false
  #awaitsEnd = false
  /** What came before the first event of a stream, or the body of a non-streamed response. */
  #kept: Buffer[] = []
  #keptBytes = 0

  constructor(plan: LegPlan, resolve: (end: LegEnd) => void, reject: (error: unknown) => void) {
    this.#plan = plan
    this.#sink = plan.sink
    this.#resolve = resolve
    this.#reject = reject
  }

  run(upstreams: Upstreams, origin: string, request: UpstreamRequest): void {
    const { firstByteMs } = this.#plan.limits
    this.#timer = setTimeout(() => this.#fail('timeout', `no response within ${firstByteMs} ms`), firstByteMs)
    this.#call = upstreams.open(origin, request, this)
    const unhookStop = this.#plan.stop.onStop(reason => {
      this.#stopped = reason
      this.#call.abort(reason)
    })
    const unhookLost = this.#plan.lost.onStop(reason => {
      if (!this.#begun || this.#plan.movable?.()) this.#call.lose(reason)
    })
    this.#unhook = () => {
      unhookStop()
      unhookLost()
    }
  }

  onStart(status: number, headers: ReplyHeaders): void {
    const { rules } = this.#plan
    this.#status = status
    this.#headers = rules.defaultHeaders === undefined ? headers : { ...rules.defaultHeaders, ...headers }
    const accepted = rules.accept(status, this.#headers)
    if (accepted === 'stream') this.#stream = rules.streamEvents()
    else if (accepted !== 'body') this.#call.abort(accepted)
  }

  onData(chunk: Buffer, frame?: Buffer): void {
    const stream = this.#stream
    if (stream === undefined) return this.#keep(chunk)
    const passed = stream.push(chunk)
    // A worker's own errors are not for clients, and before the first token the request can be retried.
    if (stream.failed && !this.#begun)
      return this.#fail('error_event', 'an error event before the first token')
    if (passed !== undefined) this.#pass(stream, passed, passed === chunk ? frame : undefined)
    if (stream.failed) this.#fail('error_event', 'an error event')
  }

  onPause(): void {
    if (!this.#begun) return
    const stream = this.#stream!
    this.#report(stream)
    if (!this.#sink.flush() && !this.#held) this.#hold()
    if (stream.done && !this.#awaitsEnd) this.#awaitEnd()
  }

  onEnd(): void {
    if (this.#stream === undefined) this.#endBody()
    else if (this.#begun) this.#endStream(this.#stream, undefined)
    else this.#failed(new UpstreamFailure('early_end', 'the stream ended before its first event'))
  }

  onFailure(failure: UpstreamFailure): void {
    if (failure.kind === 'fault') {
      this.#settle()
      this.#reject(failure.cause)
    } else if (this.#stopped !== undefined) {
      if (this.#begun && this.#stopped.cause instanceof Refusal) this.#break(this.#stopped.cause)
      this.#end({ kind: 'stopped', begun: this.#begun, sent: this.#call.sent })
    } else if (this.#begun) this.#endStream(this.#stream!, failure)
    else this.#failed(failure)
  }

  /** What precedes the first event, such as comments, waits for it. */
  #pass(stream: StreamEvents, chunk: Buffer, frame: Buffer | undefined): void {
    if (!this.#begun && !stream.started) return this.#keep(chunk)
    if (!this.#begun) this.#begin()
    this.#sink.write(chunk, frame)
  }

  /** The first event has come. From now on the request is not retried. */
  #begin(): void {
    const { limits, events, attempt } = this.#plan
    this.#begun = true
    clearTimeout(this.#timer)
    this.#lastMs = performance.now()
    this.#waitForToken(limits.betweenTokensMs)
    events.firstByte(attempt)
    this.#sink.begin(this.#headers)
    for (const chunk of this.#kept) this.#sink.write(chunk)
    this.#kept = []
  }

  #report({ events: count }: StreamEvents): void {
    this.#lastMs = performance.now()
    if (count === this.#reportedEvents) return
    this.#plan.events.tokens(this.#plan.attempt, count - this.#reportedEvents, this.#lastMs)
    this.#reportedEvents = count
  }

  /** The client is slower than the worker: its connection is not read until the client has caught up. */
  #hold(): void {
    this.#held = true
    this.#call.pause()
    clearTimeout(this.#timer)
    this.#sink.drained(() => {
      if (this.#ended) return
      this.#held = false
      this.#lastMs = performance.now()
      if (!this.#awaitsEnd) this.#waitForToken(this.#plan.limits.betweenTokensMs)
      this.#call.resume()
    })
  }

  /** After [DONE] the end must follow soon: the client does not wait for it as long as for a token. */
  #awaitEnd(): void {
    this.#awaitsEnd = true
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#fail('timeout', 'no end after [DONE]'), AFTER_DONE_MS)
  }

  #waitForToken(ms: number): void {
    const { betweenTokensMs } = this.#plan.limits
    this.#timer = setTimeout(() => {
      const leftMs = this.#lastMs + betweenTokensMs - performance.now()
      if (leftMs > 0) this.#waitForToken(leftMs)
      else this.#fail('timeout', `no byte for ${betweenTokensMs} ms`)
    }, ms)
  }

  #keep(chunk: Buffer): void {
    this.#kept.push(chunk)
    this.#keptBytes += chunk.length
    if (this.#keptBytes > MAX_BODY_BYTES)
      this.#fail('too_large', `a response of more than ${MAX_BODY_BYTES} bytes`)
  }

  #endBody(): void {
    const { rules, events, attempt } = this.#plan
    const status = this.#status
    const read = rules.readBody(status, this.#headers, Buffer.concat(this.#kept))
    if (read instanceof UpstreamFailure) return this.#failed(read)
    if (status === 200) {
      events.firstByte(attempt)
      if (read.tokens > 0) events.tokens(attempt, read.tokens, attempt.firstByteMs)
    }
    this.#sink.whole(status, this.#headers, read.body)
    return this.#end({ kind: 'served', status })
  }

  /** A stream that announced its end is complete, however its connection ended. */
  #endStream(stream: StreamEvents, failure: UpstreamFailure | undefined): void {
    this.#report(stream)
    if (stream.done || (failure === undefined && stream.endsUnannounced)) {
      this.#sink.end()
      return this.#end({ kind: 'served', status: this.#status })
    }
    const why = failure ?? new UpstreamFailure('early_end', 'the stream ended early')
    this.#break(new Refusal(why.kind === 'timeout' ? 'ELDR_STREAM_STALLED' : 'ELDR_STREAM_BROKEN'))
    return this.#failed(why)
  }

  #break(refusal: Refusal): void {
    if (this.#stream!.amidEvent) this.#sink.write(END_OF_EVENT)
    this.#sink.broken(refusal)
  }

  #fail(kind: FailureKind, words: string): void {
    this.#call.abort(new UpstreamFailure(kind, words))
  }

  #failed(failure: UpstreamFailure): void {
    const status = this.#status > 0 ? this.#status : undefined
    this.#end({ kind: 'failed', failure, begun: this.#begun, sent: this.#call.sent, status })
  }

  #end(how: LegEnd): void {
    this.#settle()
    this.#resolve(how)
  }

  #settle(): void {
    this.#ended = true
    clearTimeout(this.#timer)
    this.#unhook()
  }
}
