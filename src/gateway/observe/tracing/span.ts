/** A piece of work within a request: when, how it ended, and what is known of it. Never anything of a prompt or an answer. */
import { type TraceContext, traceparentOf } from '../../../wire/trace-context.ts'

/** As OTLP numbers them. */
export const KIND = { internal: 1, server: 2, client: 3 } as const
export type SpanKind = (typeof KIND)[keyof typeof KIND]

/** Whole numbers go out as such; what may be whole by chance is `real`, or its type would change from span to span. */
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
  /** Of the span that this one is part of; undefined for the first of a trace. */
  readonly parentId: string | undefined
  readonly name: string
  readonly kind: SpanKind
  /** Of performance.now(), as all times here. */
  readonly startMs: number
  endMs: number | undefined
  readonly attributes: [string, AttributeValue][] = []
  readonly events: SpanEvent[] = []
  /** Why it failed, if it did. */
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

  /** What whoever is asked in its name is told. */
  get traceparent(): string {
    return traceparentOf(this)
  }

  /** Undefined is left out. */
  set(attributes: Readonly<Record<string, AttributeValue>>): this {
    for (const name in attributes)
      if (attributes[name] !== undefined) this.attributes.push([name, attributes[name]])
    return this
  }

  event(name: string, atMs: number): void {
    this.events.push({ name, atMs })
  }

  /** `type` is from a fixed list, `description` is for people. */
  failed(type: string, description: string): this {
    this.error = description
    return this.set({ 'error.type': type })
  }

  end(atMs = performance.now()): void {
    this.endMs ??= atMs
  }
}
