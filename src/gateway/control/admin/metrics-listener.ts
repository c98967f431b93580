/** Metrics on a port of their own (server.metricsPort), so that whoever scrapes them need not reach the gateway's own port. */
import { createServer, type Server } from 'node:http'
import { errorBody, Refusal } from '../../http/refusal.ts'
import type { Metrics } from '../../observe/metrics/metrics.ts'

export function createMetricsListener(metrics: Metrics): Server {
  const server = createServer(async (request, response) => {
    const answer = (status: number, type: string, body: string) => {
      const allow = status === 405 && { allow: 'GET, HEAD' }
      response.writeHead(status, {
        'content-type': type,
        'content-length': Buffer.byteLength(body),
        ...allow,
      })
      response.end(request.method === 'HEAD' ? undefined : body)
    }
    const wrong =
      request.url?.split('?', 1)[0] !== '/metrics'
        ? 'ELDR_NOT_FOUND'
        : isRead(request.method)
          ? undefined
          : 'ELDR_METHOD'
    const refusal = wrong && new Refusal(wrong)
    if (refusal) answer(refusal.status, 'application/json', errorBody(refusal))
    else answer(200, metrics.registry.contentType, await metrics.text())
  })
  // Scrapers come every few seconds; an idle connection must not keep the gateway from stopping.
  server.keepAliveTimeout = 5_000
  return server
}

const isRead = (method: string | undefined) => method === 'GET' || method === 'HEAD'
