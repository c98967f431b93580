/** A span of a trace. It never contains text of a prompt or a response. */
import { type TraceContext, traceparentOf } from '../../../wire/trace-context.ts'

/** Numbers of OTLP. */
export const KIND = { internal: 1, server: 2, client: 3 } as const
export type SpanKind = (typeof KIND)[keyof typeof KIND]

/** Whole numbers are sent as integers. `real` marks a double, so that its type is the same in every span. */
export type AttributeValue = string | number | boolean | { readonly real: number } | undefined

export function real(value: number | undefined): AttributeValue {
  return value === undefined ? undefined : { real: value }
}

export interface SpanEvent {
  readonly name: string
  readonly atMs: number
}

export class Span implements TraceContext {
  readonly traceId: string
  readonly spanId: string
  readonly flags: number
  /** Undefined for the first span of a trace. */
  readonly parentId: string | undefined
  readonly name: string
  readonly kind: SpanKind
  /** Times are those of performance.now(). */
  readonly startMs: number
  endMs: number | undefined
  readonly attributes: [string, AttributeValue][] = []
  readonly events: SpanEvent[] = []
  /** Why the span failed. */
  error: string | undefined

  constructor(
    context: TraceContext,
    parentId: string | undefined,
    name: string,
    kind: SpanKind,
    startMs: number,
  ) {
    this.traceId = context.traceId
    this.spanId = context.spanId
    this.flags = context.flags
    this.parentId = parentId
    this.name = name
    this.kind = kind
    this.startMs = startMs
  }

  /** Header for requests sent on behalf of this span. */
  get traceparent(): string {
    return traceparentOf(this)
  }

  /** Skips undefined values. */
  set(attributes: Readonly<Record<string, AttributeValue>>): this {
    for (const name in attributes)
      if (attributes[name] !== undefined) this.attributes.push([name, attributes[name]])
    return this
  }

  event(name: string, atMs: number): void {
    this.events.push({ name, atMs })
  }

  /** `type` comes from a fixed list; `description` is free text. */
  failed(type: string, description: string): this {
    this.error = description
    return this.set({ 'error.type': type })
  }

  end(atMs = performance.now()): void {
    this.endMs ??= atMs
  }
}
