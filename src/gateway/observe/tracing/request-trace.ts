/** All spans of one request. They are kept until it has ended: a trace is exported whole or not at all. */
import type { WorkerSpec } from '../../../cluster/worker.ts'
import type { TraceContext } from '../../../wire/trace-context.ts'
import { KIND, Span, type SpanKind } from './span.ts'

/** A request that is split into many parts, or tried again and again, is told in part. */
const MOST_SPANS = 256

export interface TraceOrigin {
  /** Of the request's own span. */
  readonly context: TraceContext
  /** The caller's span, where it sent one. */
  readonly parentId: string | undefined
  readonly tracestate: string | undefined
}

export class RequestTrace {
  readonly root: Span
  readonly spans: Span[]
  readonly tracestate: string | undefined
  /** Whether the caller began the trace. */
  readonly isContinued: boolean
  /**
   * Added to times of performance.now() gives those of the day. One number for all spans, so that they lie within each other whatever is done to the clock
   * meanwhile.
   */
  readonly epochMs = Date.now() - performance.now()
  /** Spans that there were too many of. */
  missing = 0
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

  /** Undefined when there are too many. */
  child(name: string, kind: SpanKind, startMs = performance.now()): Span | undefined {
    if (this.spans.length >= MOST_SPANS) {
      this.missing++
      return undefined
    }
    const { traceId, spanId, flags } = this.root
    const span = new Span({ traceId, spanId: this.#newSpanId(), flags }, spanId, name, kind, startMs)
    this.spans.push(span)
    return span
  }

  /** One try on a worker. */
  leg(
    name: string,
    { id, dpRank }: Pick<WorkerSpec, 'id' | 'dpRank'>,
    attempt: number,
    part?: string,
    method = 'POST',
  ): Span | undefined {
    return this.child(name, KIND.client)?.set({
      'eldr.worker': id,
      'eldr.dp_rank': dpRank,
      'eldr.attempt': attempt,
      'eldr.part': part,
      'http.request.method': method,
    })
  }

  /** What a fault has left open ends with the request. */
  end(): void {
    const nowMs = performance.now()
    for (const span of this.spans) {
      if (span.endMs === undefined && span !== this.root) span.failed('fault', 'a fault of the gateway')
      span.end(nowMs)
    }
  }
}
