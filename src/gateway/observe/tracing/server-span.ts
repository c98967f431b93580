/** The span of a whole request: how it is called, and what it says when the request has ended. */
import type { Exchange } from '../../http/exchange.ts'
import type { Outcome } from '../metrics/metrics.ts'
import type { Route } from '../../http/routes.ts'
import { real } from './span.ts'
import type { Tracer } from './tracer.ts'

/** Routes that workers have under /v1 are named; clients may ask for any other, and names must be few. */
const NAMED = new Set(['/v1/models', '/v1/responses', '/tokenize', '/detokenize'])

/** Characters of a path that a span has. */
const MOST_PATH = 256

export function beginTrace(tracer: Tracer, exchange: Exchange, route: Route): void {
  if (route.kind !== 'generate' && route.kind !== 'pass') return
  const { request, startedMs } = exchange
  const path = route.kind === 'generate' || NAMED.has(route.path) ? route.path : '/v1/*'
  const method = request.method ?? ''
  exchange.trace = tracer.begin(request.headers, `${method} ${path}`, startedMs)
  exchange.trace?.root.set({
    'http.request.method': method,
    'http.route': path,
    'url.path': route.path.slice(0, MOST_PATH),
    'url.scheme': 'encrypted' in request.socket ? 'https' : 'http',
    'network.protocol.version': request.httpVersion,
    'eldr.request_id': exchange.id,
  })
}

/** Refusals that are the client's own doing are no errors of a server, nor is a client that leaves. */
const FAILED: ReadonlySet<Outcome> = new Set<Outcome>(['failed', 'broken', 'timeout'])

export function endTrace(tracer: Tracer, exchange: Exchange, outcome: Outcome): void {
  const { trace, facts, response } = exchange
  if (trace === undefined) return
  const { root } = trace
  root.set({
    'http.response.status_code': response.headersSent ? response.statusCode : undefined,
    'eldr.outcome': outcome,
    'eldr.error_code': facts.code,
    'eldr.stream': facts.stream,
    'eldr.parts': facts.parts === 1 ? undefined : facts.parts,
    'eldr.prefill.worker': facts.prefill,
    'eldr.worker': facts.decode,
    'eldr.policy': facts.policy,
    'eldr.reason': facts.reason,
    'eldr.similarity': real(facts.similarity),
    'eldr.coverage': real(facts.covered),
    'eldr.band_size': facts.band,
    'eldr.prompt_tokens': facts.promptTokens,
    'eldr.output_tokens': facts.firstMs === undefined ? undefined : facts.outputTokens,
    'eldr.retries': facts.retries,
  })
  if (FAILED.has(outcome)) root.failed(facts.code ?? outcome, facts.code ?? outcome)
  tracer.ended(trace)
}
