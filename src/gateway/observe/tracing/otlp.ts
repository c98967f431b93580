/**
 * Traces as OTLP's JSON (opentelemetry-proto, trace/v1): names in lowerCamelCase, ids as hexadecimal digits, 64-bit numbers as text. A
 * trace is made text once, when it ends, so that what waits for its export is small and a batch is only put together.
 */
import type { RequestTrace } from './request-trace.ts'
import type { AttributeValue, Span } from './span.ts'

const STATUS_ERROR = 2
/** Characters of a client's trace state that are repeated in each span; W3C asks for so many at the least. */
const MOST_STATE = 512
/** Bits of a span's flags beside those of its context: that it is known whether the parent is elsewhere, and that it is. */
const [REMOTE_KNOWN, REMOTE] = [0x100, 0x200]

export interface Resource {
  readonly serviceName: string
  readonly version: string
  readonly instanceId: string
}

/** Its spans as JSON objects with commas between them. */
export function encodeTrace(trace: RequestTrace): string {
  return trace.spans.map(span => JSON.stringify(spanJson(trace, span))).join(',')
}

/** The body of one request. */
export function exportBody(resource: string, spans: readonly string[]): string {
  return `{"resourceSpans":[{${resource},"spans":[${spans.join(',')}]}]}]}`
}

/** All that is in front of the spans, which is the same for every batch. */
export function encodeResource({ serviceName, version, instanceId }: Resource): string {
  const attributes = attributesJson([
    ['service.name', serviceName],
    ['service.version', version],
    ['service.instance.id', instanceId],
    ['process.pid', process.pid],
  ])
  const scope = { name: 'eldr.gateway', version }
  return `"resource":${JSON.stringify({ attributes })},"scopeSpans":[{"scope":${JSON.stringify(scope)}`
}

function spanJson({ root, tracestate, isContinued, epochMs }: RequestTrace, span: Span): object {
  const { traceId, spanId, parentId, flags, name, kind, startMs, endMs, attributes, events, error } = span
  return {
    traceId,
    spanId,
    ...(tracestate !== undefined && tracestate.length <= MOST_STATE && { traceState: tracestate }),
    ...(parentId !== undefined && { parentSpanId: parentId }),
    flags: flags | REMOTE_KNOWN | (span === root && isContinued ? REMOTE : 0),
    name,
    kind,
    startTimeUnixNano: nanos(epochMs + startMs),
    endTimeUnixNano: nanos(epochMs + (endMs ?? startMs)),
    attributes: attributesJson(attributes),
    ...(events.length > 0 && {
      events: events.map(event => ({ timeUnixNano: nanos(epochMs + event.atMs), name: event.name })),
    }),
    ...(error !== undefined && { status: { code: STATUS_ERROR, message: error } }),
  }
}

function attributesJson(attributes: readonly (readonly [string, AttributeValue])[]): object[] {
  return attributes.flatMap(([key, value]) => {
    const any = anyValue(value)
    return any === undefined ? [] : [{ key, value: any }]
  })
}

/** JSON has no NaN. */
function anyValue(value: AttributeValue): object | undefined {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'boolean') return { boolValue: value }
  if (value === undefined) return undefined
  const number = typeof value === 'number' ? value : value.real
  if (!Number.isFinite(number)) return undefined
  return number === value && Number.isSafeInteger(number)
    ? { intValue: String(number) }
    : { doubleValue: number }
}

/** More digits than a number has: the milliseconds and what is behind their point are written one after the other. */
function nanos(ms: number): string {
  const whole = Math.floor(ms)
  return `${whole}${String(Math.min(999_999, Math.round((ms - whole) * 1e6))).padStart(6, '0')}`
}
