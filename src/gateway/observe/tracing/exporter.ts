/**
 * Sends traces to a collector by OTLP over HTTP, in batches, without delaying requests. Spans wait in a queue
 * of bounded size; what does not fit is dropped and counted. Never throws.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { TraceSettings } from '../../config/settings.ts'
import type { Log, RateLimitedLog } from '../log/log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { exportBody } from './otlp.ts'
import type { OtlpPost, Posted } from './post.ts'
import type { TraceSink } from './tracer.ts'

export type ExportLimits = Pick<TraceSettings, 'batchSpans' | 'everyMs' | 'queueSpans' | 'flushMs'>

export interface ExporterParts {
  readonly post: OtlpPost
  /** Start of every export body, from `encodeResource`. */
  readonly resource: string
  readonly metrics: Pick<Metrics, 'traceSpans' | 'traceSpansDropped'>
  readonly log: Log
  readonly rateLimitedLog: RateLimitedLog
}

interface Trace {
  readonly spans: string
  readonly count: number
}

/** A batch is dropped after this many attempts. */
const MAX_ATTEMPTS = 5
/** Back-off, doubled for each consecutive failure, across batches. */
const [MIN_WAIT_MS, MAX_WAIT_MS] = [1_000, 30_000]

export class Exporter implements TraceSink {
  readonly #limits: ExportLimits
  readonly #parts: ExporterParts
  #queue: Trace[] = []
  /** Spans in the queue and in the batch being sent. */
  #pendingSpans = 0
  #timer: NodeJS.Timeout | undefined
  #sending: Promise<void> | undefined
  #failures = 0
  /** Aborted by `close`: ends waits between attempts. */
  readonly #closing = new AbortController()
  /** Aborted `flushMs` later: ends running exports. */
  readonly #expired = new AbortController()

  constructor(limits: ExportLimits, parts: ExporterParts) {
    this.#limits = limits
    this.#parts = parts
  }

  add(spans: string, count: number): void {
    if (this.#pendingSpans + count > this.#limits.queueSpans) return this.#drop(count, 'queue_full')
    if (this.#closing.signal.aborted) return this.#drop(count, 'shutdown')
    this.#pendingSpans += count
    this.#queue.push({ spans, count })
    if (this.#pendingSpans >= this.#limits.batchSpans) this.#send()
    else this.#timer ??= setTimeout(() => this.#send(), this.#limits.everyMs).unref()
  }

  missed(count: number): void {
    this.#drop(count, 'too_many')
  }

  /** Sends what is queued, each batch once, within `flushMs`. Later spans are dropped. */
  async close(): Promise<void> {
    this.#closing.abort()
    const timer = setTimeout(() => this.#expired.abort(), this.#limits.flushMs)
    await this.#sending
    this.#send()
    await this.#sending
    clearTimeout(timer)
    await this.#parts.post.close()
  }

  #send(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#sending ??= this.#sendAll()
      .catch((err: unknown) => this.#parts.log.error({ err }, 'internal error in trace export'))
      .finally(() => (this.#sending = undefined))
  }

  async #sendAll(): Promise<void> {
    while (this.#queue.length > 0) {
      const batch = this.#nextBatch()
      const count = batch.reduce((sum, each) => sum + each.count, 0)
      await this.#sendBatch(
        exportBody(
          this.#parts.resource,
          batch.map(({ spans }) => spans),
        ),
        count,
      )
      this.#pendingSpans -= count
    }
  }

  /** Whole traces, at least one. */
  #nextBatch(): Trace[] {
    let [traces, spans] = [0, 0]
    while (
      traces < this.#queue.length &&
      (traces === 0 || spans + this.#queue[traces]!.count <= this.#limits.batchSpans)
    )
      spans += this.#queue[traces++]!.count
    return this.#queue.splice(0, traces)
  }

  async #sendBatch(body: string, count: number): Promise<void> {
    const { post, metrics } = this.#parts
    for (let attempt = 1; ; attempt++) {
      if (this.#expired.signal.aborted) return this.#drop(count, 'shutdown')
      const posted = await post.send(body, this.#expired.signal)
      if (posted.kind === 'accepted') {
        this.#failures = 0
        const rejected = Math.min(count, posted.rejected)
        metrics.traceSpans.inc(count - rejected)
        if (rejected > 0) this.#drop(rejected, 'rejected')
        if (posted.message !== undefined) this.#warn('message from the trace collector', posted.message)
        return
      }
      this.#failures++
      this.#warn('trace export failed', posted.why)
      const closing = this.#closing.signal.aborted
      if (!posted.isRetryable || attempt >= MAX_ATTEMPTS || closing)
        return this.#drop(count, closing && posted.isRetryable ? 'shutdown' : 'failed')
      await this.#wait(posted)
    }
  }

  /** At least the collector's Retry-After; with jitter, so that gateways do not retry together. */
  async #wait({ retryAfterMs }: Extract<Posted, { kind: 'failed' }>): Promise<void> {
    const backOffMs = MIN_WAIT_MS * 2 ** Math.min(10, this.#failures - 1) * (0.5 + Math.random() / 2)
    const ms = Math.min(MAX_WAIT_MS, Math.max(backOffMs, retryAfterMs ?? 0))
    await sleep(ms, undefined, { signal: this.#closing.signal, ref: false }).catch(() => undefined)
  }

  #drop(count: number, reason: 'queue_full' | 'too_many' | 'failed' | 'rejected' | 'shutdown'): void {
    this.#parts.metrics.traceSpansDropped.inc({ reason }, count)
  }

  #warn(what: string, why: string): void {
    const { log, rateLimitedLog } = this.#parts
    rateLimitedLog.say(what, performance.now(), times => log.warn({ why, times }, what))
  }
}
