/**
 * One request to one worker whose answer goes to a sink. Nothing reaches the sink before the first event of a good answer, so until then
 * the request can be tried again elsewhere; after it the leg sees to it that the sink hears how the stream ended.
 */
import { Refusal } from '../http/refusal.ts'
import type { LegEnd, LegPlan } from './leg-plan.ts'
import { isWrongRank, wrongRankWords } from '../engines/wrong-rank.ts'
import type { Sink } from './sink.ts'
import {
  type FailureKind,
  type ReplyHeaders,
  type UpstreamCall,
  UpstreamFailure,
  type UpstreamHandler,
  type UpstreamRequest,
  type Upstreams,
} from '../upstream/upstreams.ts'
import { isPacked, readWhole } from './whole-response.ts'
import { WholeEvents } from './whole-events.ts'

/** Answers that are not streamed are kept until they are whole; more than this no answer has. */
const MOST_WHOLE_BYTES = 64 << 20
/** From [DONE] to the end of the answer. */
const AFTER_DONE_MS = 1_000
const END_OF_EVENT = Buffer.from('\n\n')

/** Rejects only when something threw that should not. */
export function runLeg(
  upstreams: Upstreams,
  origin: string,
  request: UpstreamRequest,
  plan: LegPlan,
): Promise<LegEnd> {
  return new Promise((resolve, reject) => new Leg(plan, resolve, reject).run(upstreams, origin, request))
}

class Leg implements UpstreamHandler {
  readonly #plan: LegPlan
  readonly #sink: Sink
  readonly #resolve: (end: LegEnd) => void
  readonly #reject: (error: unknown) => void
  readonly #events = new WholeEvents()
  #call!: UpstreamCall
  #unhook = () => {}
  #stopped: UpstreamFailure | undefined
  /** Until the first event, then between two; cleared while the client is waited for, which is not the worker's doing. */
  #timer: NodeJS.Timeout | undefined
  /** When bytes came last: the timer looks at it when it is due, which costs less than to set it anew for each token. */
  #lastMs = 0
  #toldEvents = 0
  #status = 0
  #headers: ReplyHeaders = {}
  #streaming = false
  #begun = false
  #held = false
  #ended = false
  #done = false
  /** Of a stream what came before its first event, otherwise all of the answer. */
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
    this.#timer = setTimeout(() => this.#fail('timeout', `no answer within ${firstByteMs} ms`), firstByteMs)
    this.#call = upstreams.open(origin, request, this)
    const [unhookStop, unhookLost] = [
      this.#plan.stop.onStop(reason => {
        this.#stopped = reason
        this.#call.abort(reason)
      }),
      this.#plan.lost.onStop(reason => {
        if (!this.#begun) this.#call.lose(reason)
      }),
    ]
    this.#unhook = () => {
      unhookStop()
      unhookLost()
    }
  }

  onStart(status: number, headers: ReplyHeaders): void {
    this.#status = status
    this.#headers = headers
    if (status !== 200) return
    const type = String(headers['content-type'] ?? 'none').toLowerCase()
    this.#streaming = this.#plan.stream && type.startsWith('text/event-stream')
    if (!this.#streaming && (this.#plan.stream || !type.startsWith('application/json')))
      this.#fail('garbage', `an answer of type ${type}`)
    // Nobody asked for it, and a stream must be looked into.
    else if (this.#streaming && isPacked(headers)) this.#fail('garbage', 'a compressed stream')
  }

  onData(chunk: Buffer, frame?: Buffer): void {
    if (!this.#streaming) return this.#keep(chunk)
    const { watch } = this.#events
    const passed = this.#events.push(chunk)
    // What a worker says of its own troubles is not for clients; before the first token they need not hear of them at all.
    if (watch.failed && !this.#begun)
      return this.#fail('error_event', 'an error event before the first token')
    if (passed !== undefined) this.#pass(passed, passed === chunk ? frame : undefined)
    if (watch.failed) this.#fail('error_event', 'an error event')
  }

  onPause(): void {
    if (!this.#begun) return
    this.#tell()
    if (!this.#sink.flush() && !this.#held) this.#hold()
    if (this.#events.watch.done && !this.#done) this.#awaitEnd()
  }

  onEnd(): void {
    if (!this.#streaming) this.#endWhole()
    else if (this.#begun) this.#endStream(undefined)
    else this.#failed(new UpstreamFailure('early_end', 'the stream ended before its first event'))
  }

  onFailure(failure: UpstreamFailure): void {
    if (failure.kind === 'fault') {
      this.#settle()
      this.#reject(failure.cause)
    } else if (this.#stopped !== undefined) {
      if (this.#begun && this.#stopped.cause instanceof Refusal) this.#break(this.#stopped.cause)
      this.#end({ kind: 'stopped', begun: this.#begun, sent: this.#call.sent })
    } else if (this.#begun) this.#endStream(failure)
    else this.#failed(failure)
  }

  /** What comes before the first event, such as comments, waits for it. */
  #pass(chunk: Buffer, frame: Buffer | undefined): void {
    const { watch, amidEvent } = this.#events
    if (!this.#begun && watch.events === 0 && !watch.done && !amidEvent) return this.#keep(chunk)
    if (!this.#begun) this.#begin()
    this.#sink.write(chunk, frame)
  }

  /** The first event is there. From now on it is this worker or none. */
  #begin(): void {
    this.#begun = true
    clearTimeout(this.#timer)
    this.#lastMs = performance.now()
    this.#waitForToken(this.#plan.limits.betweenTokensMs)
    this.#plan.on?.onFirstByte?.()
    this.#sink.begin(this.#headers)
    for (const chunk of this.#kept) this.#sink.write(chunk)
    this.#kept = []
  }

  #tell(): void {
    const { events } = this.#events.watch
    this.#lastMs = performance.now()
    if (events > this.#toldEvents) this.#plan.on?.onTokens?.(events - this.#toldEvents, this.#lastMs)
    this.#toldEvents = events
  }

  /** The client is slower than the worker, whose connection is not read until it has caught up. */
  #hold(): void {
    this.#held = true
    this.#call.pause()
    clearTimeout(this.#timer)
    this.#sink.drained(() => {
      if (this.#ended) return
      this.#held = false
      this.#lastMs = performance.now()
      if (!this.#done) this.#waitForToken(this.#plan.limits.betweenTokensMs)
      this.#call.resume()
    })
  }

  /** All was said, but not that it was all: the client need not wait for that as long as for a token. */
  #awaitEnd(): void {
    this.#done = true
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
    if (this.#keptBytes > MOST_WHOLE_BYTES)
      this.#fail('too_large', `an answer of more than ${MOST_WHOLE_BYTES} bytes`)
  }

  #endWhole(): void {
    const status = this.#status
    if (status !== 200 && (status < 400 || status === 429 || status >= 500)) {
      return this.#failed(new UpstreamFailure('status', `status ${status}`))
    }
    const body = Buffer.concat(this.#kept)
    const { dpRank } = this.#plan
    if (isWrongRank(dpRank, status, body))
      return this.#failed(new UpstreamFailure('status', wrongRankWords(dpRank)))
    const answer = status !== 200 || isPacked(this.#headers) ? { body, tokens: 0 } : readWhole(body)
    if (answer === undefined)
      return this.#failed(new UpstreamFailure('garbage', 'an answer that is not JSON'))
    if (status === 200) {
      this.#plan.on?.onFirstByte?.()
      this.#plan.on?.onWhole?.(answer.tokens)
    }
    this.#sink.whole(status, this.#headers, answer.body)
    return this.#end({ kind: 'served', status })
  }

  /** A stream that was told to its end is whole, however its connection ended. */
  #endStream(failure: UpstreamFailure | undefined): void {
    this.#tell()
    if (this.#events.watch.done) {
      this.#sink.end()
      return this.#end({ kind: 'served', status: this.#status })
    }
    const why = failure ?? new UpstreamFailure('early_end', 'the stream ended early')
    this.#break(new Refusal(why.kind === 'timeout' ? 'ELDR_STREAM_STALLED' : 'ELDR_STREAM_BROKEN'))
    return this.#failed(why)
  }

  #break(refusal: Refusal): void {
    if (this.#events.amidEvent) this.#sink.write(END_OF_EVENT)
    this.#sink.broken(refusal)
  }

  #fail(kind: FailureKind, words: string): void {
    this.#call.abort(new UpstreamFailure(kind, words))
  }

  #failed(failure: UpstreamFailure): void {
    this.#end({
      kind: 'failed',
      failure,
      begun: this.#begun,
      sent: this.#call.sent,
      ...(this.#status > 0 && { status: this.#status }),
    })
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
