/**
 * Encodes traces as OTLP JSON (opentelemetry-proto, trace/v1): names in lowerCamelCase, ids in hexadecimal,
 * 64-bit numbers as strings. A trace is encoded when it ends, so that queued traces are small and batches
 * cheap to build.
 */
import type { RequestTrace } from './request-trace.ts'
import type { AttributeValue, Span } from './span.ts'

const STATUS_ERROR = 2
/** A longer tracestate is left out. W3C requires at least this much to be propagated. */
const MAX_TRACESTATE_CHARACTERS = 512
/** OTLP span flags: `is_remote` is known, and its value. */
const [HAS_IS_REMOTE, IS_REMOTE] = [0x100, 0x200]

export interface Resource {
  readonly serviceName: string
  readonly version: string
  readonly instanceId: string
}

/** The spans as JSON objects, separated by commas. */
export function encodeTrace(trace: RequestTrace): string {
  return trace.spans.map(span => JSON.stringify(spanJson(trace, span))).join(',')
}

/** Body of an export request. */
export function exportBody(resource: string, spans: readonly string[]): string {
  return `{"resourceSpans":[{${resource},"spans":[${spans.join(',')}]}]}]}`
}

/** The part before the spans, which is the same for every batch. */
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
  const hasState = tracestate !== undefined && tracestate.length <= MAX_TRACESTATE_CHARACTERS
  return {
    traceId,
    spanId,
    traceState: hasState ? tracestate : undefined,
    parentSpanId: parentId,
    flags: flags | HAS_IS_REMOTE | (span === root && isContinued ? IS_REMOTE : 0),
    name,
    kind,
    startTimeUnixNano: nanos(epochMs + startMs),
    endTimeUnixNano: nanos(epochMs + (endMs ?? startMs)),
    attributes: attributesJson(attributes),
    events:
      events.length === 0
        ? undefined
        : events.map(event => ({ timeUnixNano: nanos(epochMs + event.atMs), name: event.name })),
    status: error === undefined ? undefined : { code: STATUS_ERROR, message: error },
  }
}

function attributesJson(attributes: readonly (readonly [string, AttributeValue])[]): object[] {
  return attributes.flatMap(([key, value]) => {
    const any = anyValue(value)
    return any === undefined ? [] : [{ key, value: any }]
  })
}

/** Undefined for NaN and infinity, which JSON cannot represent. */
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

/** A double cannot hold Unix time in nanoseconds: whole milliseconds and the fraction are printed apart. */
function nanos(ms: number): string {
  const whole = Math.floor(ms)
  return `${whole}${String(Math.min(999_999, Math.round((ms - whole) * 1e6))).padStart(6, '0')}`
}
