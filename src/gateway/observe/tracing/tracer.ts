/** Decides which requests are traced, and assigns ids. */
import { randomFillSync } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import {
  RANDOM_ID,
  readTraceparent,
  readTracestate,
  SAMPLED,
  traceparentOf,
} from '../../../wire/trace-context.ts'
import { encodeTrace } from './otlp.ts'
import { RequestTrace } from './request-trace.ts'

/** Receives finished traces. */
export interface TraceSink {
  add(spans: string, count: number): void
  /** Reports spans that were not recorded. */
  missed(count: number): void
}

export class Tracer {
  readonly #sink: TraceSink
  readonly #sampleRatio: number
  readonly #ids = new RandomIds()

  constructor(sink: TraceSink, sampleRatio: number) {
    this.#sink = sink
    this.#sampleRatio = sampleRatio
  }

  /**
   * @returns undefined if the request is not traced. The caller's decision, if it sent one, is final.
   * Otherwise the request is sampled here, and the decision is written to `headers`, so that workers do not
   * sample on their own.
   */
  begin(headers: IncomingHttpHeaders, name: string, startMs: number): RequestTrace | undefined {
    const parent = readTraceparent(headers['traceparent'])
    if (parent !== undefined && (parent.flags & SAMPLED) === 0) return undefined
    const traceId = parent?.traceId ?? this.#ids.take(16)
    const context = {
      traceId,
      spanId: this.#ids.take(8),
      flags: SAMPLED | ((parent?.flags ?? 0) & RANDOM_ID),
    }
    if (parent === undefined && !isSampled(traceId, this.#sampleRatio)) {
      headers['traceparent'] = traceparentOf({ ...context, flags: 0 })
      delete headers['tracestate'] // belongs to an invalid traceparent
      return undefined
    }
    const tracestate = parent && readTracestate(headers['tracestate'])
    return new RequestTrace({ context, parentId: parent?.spanId, tracestate }, name, startMs, () =>
      this.#ids.take(8),
    )
  }

  ended(trace: RequestTrace): void {
    trace.end()
    if (trace.dropped > 0) this.#sink.missed(trace.dropped)
    this.#sink.add(encodeTrace(trace), trace.spans.length)
  }
}

/**
 * Samples by the rightmost 56 bits of the id, which are random in all common id formats, without the last
 * four, which a double cannot hold. Other services that sample by these bits keep the same traces, or more
 * with a larger ratio.
 */
export function isSampled(traceId: string, ratio: number): boolean {
  return Number.parseInt(traceId.slice(18, 31), 16) / 2 ** 52 >= 1 - ratio
}

/** Each draw of random bytes is a call into OpenSSL, so many are drawn at once. */
class RandomIds {
  readonly #bytes = Buffer.alloc(2_048)
  #at = this.#bytes.length

  /** Hexadecimal, never all zeros, which is an invalid id. */
  take(bytes: number): string {
    if (this.#at + bytes > this.#bytes.length) {
      randomFillSync(this.#bytes)
      this.#at = 0
    }
    const id = this.#bytes.toString('hex', this.#at, this.#at + bytes)
    this.#at += bytes
    return /[^0]/.test(id) ? id : this.take(bytes)
  }
}
