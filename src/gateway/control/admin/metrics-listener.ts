/**
 * Serves /metrics on a separate port (server.metricsPort), so that the scraper does not need access to the
 * main port.
 */
import { createServer, type Server } from 'node:http'
import { errorBody, Refusal } from '../../http/refusal.ts'
import type { Metrics } from '../../observe/metrics/metrics.ts'

export function createMetricsListener(metrics: Metrics): Server {
  const server = createServer(async (request, response) => {
    const respond = (status: number, type: string, body: string) => {
      const allow = status === 405 && { allow: 'GET, HEAD' }
      response.writeHead(status, {
        'content-type': type,
        'content-length': Buffer.byteLength(body),
        ...allow,
      })
      response.end(request.method === 'HEAD' ? undefined : body)
    }
    const code =
      request.url?.split('?', 1)[0] !== '/metrics'
        ? 'ELDR_NOT_FOUND'
        : isRead(request.method)
          ? undefined
          : 'ELDR_METHOD'
    const refusal = code && new Refusal(code)
    if (refusal) respond(refusal.status, 'application/json', errorBody(refusal))
    else respond(200, metrics.registry.contentType, await metrics.text())
  })
  // An idle connection of a scraper must not delay shutdown.
  server.keepAliveTimeout = 5_000
  return server
}

const isRead = (method: string | undefined) => method === 'GET' || method === 'HEAD'
