/** Which requests are traced, and under which ids. There is no tracer where traces are off. */
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

/** Where traces that have ended go. */
export interface TraceSink {
  add(spans: string, count: number): void
  /** Spans that were never made. */
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
   * Undefined when the request is not traced. What the caller decided holds: a trace that it keeps is kept whole, one that it does not is
   * left alone. Otherwise it is decided here, and the workers are told so in `headers`, or each of them would decide anew.
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
    if (parent === undefined && !isChosen(traceId, this.#sampleRatio)) {
      headers['traceparent'] = traceparentOf({ ...context, flags: 0 })
      delete headers['tracestate'] // it belongs to a context that was none
      return undefined
    }
    const tracestate = parent && readTracestate(headers['tracestate'])
    return new RequestTrace({ context, parentId: parent?.spanId, tracestate }, name, startMs, () =>
      this.#ids.take(8),
    )
  }

  ended(trace: RequestTrace): void {
    trace.end()
    if (trace.missing > 0) this.#sink.missed(trace.missing)
    this.#sink.add(encodeTrace(trace), trace.spans.length)
  }
}

/**
 * By the rightmost 56 bits of the id, which are random in ids of every kind, less four that a number here does not hold. Whoever else goes
 * by them with the same ratio keeps the same traces, and with a larger one all of those.
 */
export function isChosen(traceId: string, ratio: number): boolean {
  return Number.parseInt(traceId.slice(18, 31), 16) / 2 ** 52 >= 1 - ratio
}

/** Random bytes cost a call into OpenSSL: many are drawn at once. */
class RandomIds {
  readonly #bytes = Buffer.alloc(2_048)
  #at = this.#bytes.length

  /** Hexadecimal, and never all zeros, which would be no id. */
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
