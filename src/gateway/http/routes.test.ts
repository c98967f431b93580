import { describe, expect, it } from 'vitest'
import { routeOf } from './routes.ts'

const name = (method: string, url: string) => {
  const route = routeOf(method, url)
  return route.kind === 'refused'
    ? `${route.code}${route.allow === undefined ? '' : ` (${route.allow})`}`
    : Object.values(route).join(' ')
}

describe('routeOf', () => {
  it.each([
    ['POST /v1/completions', 'generate completions /v1/completions'],
    ['POST /v1/chat/completions?a=b', 'generate chat /v1/chat/completions'],
    ['POST http://other/v1/completions', 'generate completions /v1/completions'],
    ['GET /v1/completions', 'ELDR_METHOD (POST)'],
    ['GET /health', 'own health'],
    ['HEAD /ready', 'own ready'],
    ['GET /metrics?x', 'own metrics'],
    ['GET /version', 'own version'],
    ['POST /health', 'ELDR_METHOD (GET, HEAD)'],
    ['GET /eldr', 'admin /eldr'],
    ['POST /eldr/workers/[::1]:8000/drain', 'admin /eldr/workers/[::1]:8000/drain'],
    ['POST /eldr/workers/%5B::1%5D:8000/drain', 'admin /eldr/workers/%5B::1%5D:8000/drain'],
    ['GET /eldrx', 'ELDR_NOT_FOUND'],
    ['GET /v1/models', 'pass /v1/models'],
    ['HEAD /v1/models', 'pass /v1/models'],
    ['POST /v1/responses', 'pass /v1/responses'],
    ['POST /v1/messages', 'pass /v1/messages'],
    ['POST /tokenize', 'pass /tokenize'],
    ['DELETE /v1/responses/1', 'ELDR_METHOD (GET, HEAD, POST)'],
    ['POST /v1/embeddings', 'ELDR_NOT_GENERATION'],
    ['POST /v1/audio/transcriptions', 'ELDR_NOT_GENERATION'],
    ['POST /v1/load_lora_adapter', 'ELDR_NOT_GENERATION'],
    ['OPTIONS *', 'ELDR_METHOD (GET, HEAD, POST)'],
    ['GET /', 'ELDR_NOT_FOUND'],
    ['GET ', 'ELDR_NOT_FOUND'],
    ['GET /v1', 'ELDR_NOT_FOUND'],
    ['GET /v1/', 'ELDR_NOT_FOUND'],
    ['GET /v1/models/', 'ELDR_NOT_FOUND'],
    ['GET /constructor', 'ELDR_NOT_FOUND'],
    ['GET /__proto__', 'ELDR_NOT_FOUND'],
    ['GET health', 'ELDR_BAD_REQUEST'],
    ['GET /v1//models', 'ELDR_BAD_REQUEST'],
    ['GET /v1/../health', 'ELDR_BAD_REQUEST'],
    ['GET /v1/.', 'ELDR_BAD_REQUEST'],
    ['GET /v1/%6dodels', 'ELDR_BAD_REQUEST'],
    ['GET /v1/models%00', 'ELDR_BAD_REQUEST'],
    ['GET /v1\\models', 'ELDR_BAD_REQUEST'],
    ['GET /eldr/../health', 'ELDR_BAD_REQUEST'],
    ['GET /eldr/%2e%2e/health', 'ELDR_BAD_REQUEST'],
    ['GET /v1/a"b', 'ELDR_BAD_REQUEST'],
    ['GET ftp://other/health', 'ELDR_BAD_REQUEST'],
  ])('%s is %s', (request, wanted) => {
    const [method, url] = request.split(' ', 2) as [string, string]
    expect(name(method, url)).toBe(wanted)
  })
})
