/** Headers of a request to a worker. */
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { Exchange } from '../http/exchange.ts'
import type { TraceHeaders } from '../observe/request-observer.ts'
import type { FlowContext } from './context.ts'

/**
 * Client headers that mean something to a worker. All others stop here, above all those that choose a rank.
 */
const PASSED = ['baggage', 'x-session-id', 'user-agent'] as const
/** Trace context passes too, unless the gateway traces the request itself. */
const PASSED_UNTRACED = [...PASSED, 'traceparent', 'tracestate'] as const

/** Both legs carry the same request id. Responses must not be compressed, because streams are inspected. */
export function workerHeaders(
  { settings: { workers, server }, engine }: Pick<FlowContext, 'settings' | 'engine'>,
  { request }: Pick<Exchange, 'request'>,
  requestId: string,
  worker: WorkerSpec,
  trace: TraceHeaders | undefined,
): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    'accept-encoding': 'identity',
    'x-request-id': requestId,
  }
  for (const name of trace === undefined ? PASSED_UNTRACED : PASSED) {
    const value = request.headers[name]
    if (typeof value === 'string') headers[name] = value
  }
  for (const name of engine.passedHeaders) {
    const value = request.headers[name]
    if (typeof value === 'string') headers[name] = value
  }
  if (trace !== undefined) {
    headers['traceparent'] = trace.traceparent
    if (trace.tracestate !== undefined) headers['tracestate'] = trace.tracestate
  }
  // A client's key for the gateway is not for the workers. Where the gateway asks for none, it may be theirs.
  const own = server.apiKeys.length === 0 ? request.headers.authorization : undefined
  const authorization = workers.apiKey === undefined ? own : `Bearer ${workers.apiKey}`
  if (authorization !== undefined) headers['authorization'] = authorization
  const rank = engine.rankHeaders(worker)
  return rank === undefined ? headers : Object.assign(headers, rank)
}
