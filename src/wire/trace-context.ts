/**
 * W3C trace context (https://www.w3.org/TR/trace-context/): the trace that a request belongs to, and the span
 * that sent it. An invalid header is ignored; the request is served without a context.
 */
export interface TraceContext {
  /** 32 and 16 lower-case hexadecimal digits. */
  readonly traceId: string
  readonly spanId: string
  /** One byte; its lowest bit says that the caller records its spans. */
  readonly flags: number
}

export const SAMPLED = 0x01
/** True if the trace id was drawn at random (level 2); holds for the whole trace. */
export const RANDOM_ID = 0x02

const PARENT = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/
const [NO_TRACE, NO_SPAN] = ['0'.repeat(32), '0'.repeat(16)]

/**
 * Parses any header; undefined if it names no trace. A later version is read as far as version 00 goes, as
 * the specification requires.
 */
export function readTraceparent(header: unknown): TraceContext | undefined {
  if (typeof header !== 'string') return undefined
  const [, version, traceId, spanId, flags, more] = PARENT.exec(header) ?? []
  if (version === undefined || version === 'ff' || traceId === NO_TRACE || spanId === NO_SPAN)
    return undefined
  if (version === '00' && more !== undefined) return undefined
  return { traceId: traceId!, spanId: spanId!, flags: Number.parseInt(flags!, 16) }
}

export function traceparentOf({ traceId, spanId, flags }: TraceContext): string {
  return `00-${traceId}-${spanId}-${flags.toString(16).padStart(2, '0')}`
}

const KEY = /^[a-z\d][a-z\d_*/-]{0,255}$|^[a-z\d][a-z\d_*/-]{0,240}@[a-z][a-z\d_*/-]{0,13}$/
const VALUE = /^[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/
const [MAX_MEMBERS, MAX_CHARACTERS] = [32, 8_192]

/** Vendor data of a trace, passed on unchanged; undefined if invalid. */
export function readTracestate(header: unknown): string | undefined {
  if (typeof header !== 'string' || header.length > MAX_CHARACTERS) return undefined
  const members = header
    .split(',')
    .map(member => member.trim())
    .filter(member => member !== '')
  const keys = new Set<string>()
  for (const member of members) {
    const at = member.indexOf('=')
    const key = member.slice(0, Math.max(0, at))
    if (!KEY.test(key) || !VALUE.test(member.slice(at + 1)) || keys.has(key)) return undefined
    keys.add(key)
  }
  return members.length === 0 || members.length > MAX_MEMBERS ? undefined : members.join(',')
}
