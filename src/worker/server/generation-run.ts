/**
 * One request from its submission to the engine until the end of its response: turns tokens into text,
 * searches for stop strings, measures times, and frees everything it holds at its end, which happens exactly
 * once.
 */
import type {
  FinishedGeneration,
  GenerationEnd,
  GenerationEvents,
  RunningGeneration,
  Tokenizer,
} from '../types.ts'
import type { FinishReason } from './response-bodies.ts'
import { ApiError } from './api-error.ts'
import type { ApiRequest } from './api-request.ts'
import type { WorkerMetrics } from './metrics.ts'
import { StopText } from './stop-text.ts'

export interface RunEnd {
  /** The last token, and remaining text. `ids` is empty if all tokens were sent before. */
  readonly last: { readonly ids: readonly number[]; readonly text: string }
  readonly finished: FinishedGeneration
  readonly finishReason: FinishReason
  readonly stopReason: string | number | null
}

/** Destination of a response: sent whole, or streamed. */
export interface ResponseSink {
  token(id: number, text: string): void
  finish(end: RunEnd): void
  fail(error: ApiError): void
}

export interface RunOptions {
  readonly asked: Pick<ApiRequest, 'stop' | 'includeStop' | 'stopTokenIds' | 'minTokens' | 'ignoreEos'>
  readonly promptTokens: number
  readonly maxTokens: number
  readonly tokenizer: Pick<Tokenizer, 'eosId' | 'endsText'>
  readonly sink: ResponseSink
  readonly metrics: WorkerMetrics
  readonly arrivedMs: number
  /** Called once, after the sink was told of the end, or instead of that if the client is gone. */
  readonly onEnd: (end: GenerationEnd, taken: boolean) => void
}

export class GenerationRun implements GenerationEvents {
  readonly #options: RunOptions
  readonly #stop: StopText
  #running: RunningGeneration | undefined
  #gone = false
  #ended = false
  #tokens = 0
  #firstMs = 0
  #lastMs = 0
  #stopReason: string | number | undefined
  #endReason: number | undefined
  /** A token that may be the last one is held back and sent together with the end. */
  #held: { readonly id: number; readonly text: string } | undefined

  constructor(options: RunOptions) {
    this.#options = options
    this.#stop = new StopText(options.asked.stop, options.asked.includeStop)
  }

  begin(running: RunningGeneration): void {
    this.#running = running
    if (this.#gone) running.abort('gone')
  }

  /** The client has left or is considered gone. */
  leave(): void {
    if (this.#gone || this.#ended) return
    this.#gone = true
    this.#running?.abort('gone')
  }

  /** The worker is stopping; the client gets an error. */
  callOff(): void {
    this.#running?.abort('gone')
  }

  onToken(id: number, text: string): void {
    this.#clock()
    if (this.#gone || this.#stopReason !== undefined) return
    const { asked, maxTokens, tokenizer, sink } = this.#options
    this.#flush()
    const maySearch = this.#tokens > asked.minTokens
    const piece = this.#stop.push(text, maySearch)
    const found = piece.stop ?? (maySearch && asked.stopTokenIds.has(id) ? id : undefined)
    const isEnd = !asked.ignoreEos && tokenizer.endsText(id)
    // As in vLLM, end-of-text tokens other than the tokenizer’s own are reported as the stop reason.
    if (isEnd && id !== tokenizer.eosId) this.#endReason = id
    const isLast = found !== undefined || this.#tokens === maxTokens || isEnd
    if (isLast) this.#held = { id, text: piece.text }
    else sink.token(id, piece.text)
    if (found === undefined) return
    this.#stopReason = found
    this.#running!.abort('stop')
  }

  onEnd(end: GenerationEnd): void {
    if (this.#ended) return
    this.#ended = true
    const { sink, onEnd } = this.#options
    const taken = !this.#gone && end.kind !== 'aborted'
    if (taken && end.kind === 'finished') this.#finish(end)
    else if (taken && end.kind === 'failed') sink.fail(new ApiError(end.status, end.message))
    // Aborted by the worker while the client is waiting.
    else if (!this.#gone) sink.fail(new ApiError(503, 'The worker is stopping.'))
    onEnd(end, taken)
  }

  #finish(finished: FinishedGeneration): void {
    const { sink, metrics, arrivedMs } = this.#options
    const nowMs = performance.now()
    metrics.requestSeconds.observe((nowMs - arrivedMs) / 1000)
    metrics.promptTokens.observe(finished.promptTokens)
    metrics.generationTokens.observe(this.#tokens)
    if (this.#tokens > 1)
      metrics.perTokenSeconds.observe((this.#lastMs - this.#firstMs) / 1000 / (this.#tokens - 1))
    const rest =
      this.#stopReason === undefined ? this.#stop.push(finished.tail, false).text + this.#stop.rest() : ''
    const held = this.#held
    const last = { ids: held === undefined ? [] : [held.id], text: (held?.text ?? '') + rest }
    sink.finish({
      last,
      finished,
      finishReason: finished.reason,
      stopReason: this.#stopReason ?? this.#endReason ?? null,
    })
  }

  #flush(): void {
    const held = this.#held
    this.#held = undefined
    if (held !== undefined) this.#options.sink.token(held.id, held.text)
  }

  #clock(): void {
    const { metrics, arrivedMs, promptTokens } = this.#options
    const nowMs = performance.now()
    if (this.#tokens++ === 0) {
      this.#firstMs = nowMs
      metrics.promptTokensTaken.inc(promptTokens)
      metrics.ttftSeconds.observe((nowMs - arrivedMs) / 1000)
    } else metrics.interTokenSeconds.observe((nowMs - this.#lastMs) / 1000)
    this.#lastMs = nowMs
  }
}
