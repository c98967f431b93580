/** All spans of one request, kept until it ends: a trace is exported as a whole or not at all. */
import type { TraceContext } from '../../../wire/trace-context.ts'
import { KIND, Span, type SpanKind } from './span.ts'

/** Further spans are dropped and counted: a request may have many parts and retries. */
const MAX_SPANS = 256

export interface TraceOrigin {
  /** Context of the request's own span. */
  readonly context: TraceContext
  /** The caller's span, if it sent one. */
  readonly parentId: string | undefined
  readonly tracestate: string | undefined
}

export class RequestTrace {
  readonly root: Span
  readonly spans: Span[]
  readonly tracestate: string | undefined
  /** Whether the caller started the trace. */
  readonly isContinued: boolean
  /**
   * Offset from performance.now() to Unix time. The same for all spans, so that they nest correctly even if
   * the clock is set meanwhile.
   */
  readonly epochMs = Date.now() - performance.now()
  /** Spans beyond MAX_SPANS. */
  dropped = 0
  readonly #newSpanId: () => string

  constructor(
    { context, parentId, tracestate }: TraceOrigin,
    name: string,
    startMs: number,
    newSpanId: () => string,
  ) {
    this.root = new Span(context, parentId, name, KIND.server, startMs)
    this.spans = [this.root]
    this.tracestate = tracestate
    this.isContinued = parentId !== undefined
    this.#newSpanId = newSpanId
  }

  /** Undefined if there are too many spans. */
  child(name: string, kind: SpanKind, startMs = performance.now()): Span | undefined {
    if (this.spans.length >= MAX_SPANS) {
      this.dropped++
      return undefined
    }
    const { traceId, spanId, flags } = this.root
    const span = new Span({ traceId, spanId: this.#newSpanId(), flags }, spanId, name, kind, startMs)
    this.spans.push(span)
    return span
  }

  /** Spans left open by an internal error end as failed. */
  end(): void {
    const nowMs = performance.now()
    for (const span of this.spans) {
      if (span.endMs === undefined && span !== this.root)
        span.failed('fault', 'internal error in the gateway')
      span.end(nowMs)
    }
  }
}
