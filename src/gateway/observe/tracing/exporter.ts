/**
 * Sends traces to a collector by OTLP over HTTP, in batches, beside the requests and never in their way: what cannot be sent waits in a
 * queue of bounded size, and what finds no place there is dropped and counted. Nothing thrown in here leaves it.
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
  /** What stands in front of the spans. */
  readonly resource: string
  readonly metrics: Pick<Metrics, 'traceSpans' | 'traceSpansDropped'>
  readonly log: Log
  readonly rateLimitedLog: RateLimitedLog
}

interface Trace {
  readonly spans: string
  readonly count: number
}

/** A batch that so many tries could not bring to the collector is given up. */
const MOST_TRIES = 5
/** Wait after a failure; doubled for each in a row, whatever batch it befell, until one goes well. */
const [FIRST_WAIT_MS, LONGEST_WAIT_MS] = [1_000, 30_000]

export class Exporter implements TraceSink {
  readonly #limits: ExportLimits
  readonly #parts: ExporterParts
  #queue: Trace[] = []
  /** Those of the queue and of the batch that is being sent. */
  #waiting = 0
  #timer: NodeJS.Timeout | undefined
  #sending: Promise<void> | undefined
  #failures = 0
  /** Ends waits, and in the end all that is under way. */
  readonly #closing = new AbortController()
  readonly #late = new AbortController()

  constructor(limits: ExportLimits, parts: ExporterParts) {
    this.#limits = limits
    this.#parts = parts
  }

  add(spans: string, count: number): void {
    if (this.#waiting + count > this.#limits.queueSpans) return this.#drop(count, 'queue_full')
    if (this.#closing.signal.aborted) return this.#drop(count, 'shutdown')
    this.#waiting += count
    this.#queue.push({ spans, count })
    if (this.#waiting >= this.#limits.batchSpans) this.#send()
    else this.#timer ??= setTimeout(() => this.#send(), this.#limits.everyMs).unref()
  }

  missed(count: number): void {
    this.#drop(count, 'too_many')
  }

  /** Sends what is there, each batch once, within `flushMs`. What comes later is dropped. */
  async close(): Promise<void> {
    this.#closing.abort()
    const timer = setTimeout(() => this.#late.abort(), this.#limits.flushMs)
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
      .catch((err: unknown) =>
        this.#parts.log.error({ err }, 'the export of traces met a fault of the gateway'),
      )
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
      this.#waiting -= count
    }
  }

  /** Whole traces, one at least. */
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
    for (let tries = 1; ; tries++) {
      if (this.#late.signal.aborted) return this.#drop(count, 'shutdown')
      const posted = await post.send(body, this.#late.signal)
      if (posted.kind === 'taken') {
        this.#failures = 0
        const rejected = Math.min(count, posted.rejected)
        metrics.traceSpans.inc(count - rejected)
        if (rejected > 0) this.#drop(rejected, 'rejected')
        if (posted.words !== undefined)
          this.#say('the collector has something to say of traces', posted.words)
        return
      }
      this.#failures++
      this.#say('traces could not be sent', posted.why)
      const closing = this.#closing.signal.aborted
      if (!posted.again || tries >= MOST_TRIES || closing)
        return this.#drop(count, closing && posted.again ? 'shutdown' : 'failed')
      await this.#wait(posted)
    }
  }

  /** As long as the collector asks for, or longer each time; drawn between half and all of it, so that gateways do not come back together. */
  async #wait({ afterMs }: Extract<Posted, { kind: 'failed' }>): Promise<void> {
    const ownMs = FIRST_WAIT_MS * 2 ** Math.min(10, this.#failures - 1) * (0.5 + Math.random() / 2)
    const ms = Math.min(LONGEST_WAIT_MS, Math.max(ownMs, afterMs ?? 0))
    await sleep(ms, undefined, { signal: this.#closing.signal, ref: false }).catch(() => undefined)
  }

  #drop(count: number, reason: 'queue_full' | 'too_many' | 'failed' | 'rejected' | 'shutdown'): void {
    this.#parts.metrics.traceSpansDropped.inc({ reason }, count)
  }

  #say(what: string, why: string): void {
    const { log, rateLimitedLog } = this.#parts
    rateLimitedLog.say(what, performance.now(), times => log.warn({ why, times }, what))
  }
}
