import type { WorkerSpec } from '../../cluster/worker.ts'
import type { Settings } from '../config/settings.ts'
import type { Exchange } from '../http/exchange.ts'
import type { Span } from '../observe/tracing/span.ts'

/** What of a client's headers means something to a worker. Everything else ends at the gateway, X-data-parallel-rank above all. */
const PASSED = [
  'traceparent',
  'tracestate',
  'baggage',
  'x-session-id',
  'x-vllm-priority',
  'user-agent',
] as const

/** The same in the name of a span: that of the leg, or of the request where the leg has none. A request that is not traced passes its own on. */
export function traced(
  headers: Readonly<Record<string, string>>,
  { trace }: Pick<Exchange, 'trace'>,
  span?: Pick<Span, 'traceparent'>,
): Readonly<Record<string, string>> {
  if (trace === undefined) return headers
  const { tracestate: _, ...rest } = headers
  return {
    ...rest,
    traceparent: (span ?? trace.root).traceparent,
    ...(trace.tracestate !== undefined && { tracestate: trace.tracestate }),
  }
}

/** The same for one engine of a server that has several. vLLM chooses one by itself where no rank is named. */
export function ranked(
  headers: Readonly<Record<string, string>>,
  { dpRank }: Pick<WorkerSpec, 'dpRank'>,
): Readonly<Record<string, string>> {
  return dpRank === undefined ? headers : { ...headers, 'x-data-parallel-rank': String(dpRank) }
}

/** Headers of a leg: the same request id on both, no compression, since streams are looked at, and the workers' own key. */
export function legHeaders(
  { workers, server }: Settings,
  { request }: Pick<Exchange, 'request'>,
  requestId: string,
): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    'accept-encoding': 'identity',
    'x-request-id': requestId,
  }
  for (const name of PASSED) {
    const value = request.headers[name]
    if (typeof value === 'string') headers[name] = value
  }
  // A client's key for the gateway is not for the workers; where the gateway asks for none it may be theirs.
  const own = server.apiKeys.length === 0 ? request.headers.authorization : undefined
  const authorization = workers.apiKey === undefined ? own : `Bearer ${workers.apiKey}`
  if (authorization !== undefined) headers['authorization'] = authorization
  return headers
}
