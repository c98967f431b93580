import type { Settings } from './config/settings.ts'
import type { Exchange } from './exchange.ts'

/** What of a client's headers means something to a worker. Everything else ends at the gateway. */
const PASSED = ['traceparent', 'tracestate', 'baggage', 'x-session-id', 'x-vllm-priority', 'user-agent'] as const

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
