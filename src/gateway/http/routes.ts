/** Which path is what. */
import type { RefusalCode } from './refusal.ts'
import type { Api } from './client-request.ts'

export type Route =
  | { readonly kind: 'generate'; readonly api: Api; readonly path: string }
  /** To one worker as it is. */
  | { readonly kind: 'pass'; readonly path: string }
  | { readonly kind: 'own'; readonly name: OwnRoute }
  | { readonly kind: 'admin'; readonly path: string }
  /** The dashboard. */
  | { readonly kind: 'page'; readonly path: string }
  | { readonly kind: 'refused'; readonly code: RefusalCode; readonly allow?: string }

export type OwnRoute = (typeof OWN)[keyof typeof OWN]

export const GENERATE: Readonly<Record<string, Api>> = {
  '/v1/completions': 'completions',
  '/v1/chat/completions': 'chat',
}
export const OWN = {
  '/health': 'health',
  '/ready': 'ready',
  '/metrics': 'metrics',
  '/version': 'version',
  '/openapi.json': 'openapi',
} as const
/** These have no decode phase, or are an engine's own affair. */
const NOT_GENERATION =
  /^\/v1\/(embeddings|rerank|score|audio|images|moderations|fine_tuning|files|batches|load_lora_adapter|unload_lora_adapter)\b/
/** To one worker, as all else under /v1/ is; of these it is known which methods every engine takes. */
export const PASSED: Readonly<Record<string, string>> = {
  '/v1/models': 'GET, HEAD',
  '/tokenize': 'POST',
  '/detokenize': 'POST',
}
const ANY_METHOD = 'GET, HEAD, POST'

export function routeOf(method: string, url: string): Route {
  const path = Object.hasOwn(GENERATE, url) ? url : pathOf(url)
  if (path === undefined) return { kind: 'refused', code: 'ELDR_BAD_REQUEST' }
  const api = Object.hasOwn(GENERATE, path) ? GENERATE[path] : undefined
  if (api !== undefined) return method === 'POST' ? { kind: 'generate', api, path } : wrongMethod('POST')
  if (Object.hasOwn(OWN, path)) {
    return method === 'GET' || method === 'HEAD'
      ? { kind: 'own', name: OWN[path as keyof typeof OWN] }
      : wrongMethod('GET, HEAD')
  }
  if (path === '/dashboard' || path.startsWith('/dashboard/')) {
    return method === 'GET' || method === 'HEAD' ? { kind: 'page', path } : wrongMethod('GET, HEAD')
  }
  if (path === '/eldr' || path.startsWith('/eldr/')) return { kind: 'admin', path }
  if (NOT_GENERATION.test(path)) return { kind: 'refused', code: 'ELDR_NOT_GENERATION' }
  if (path === '*') return wrongMethod(ANY_METHOD)
  if ((path.startsWith('/v1/') && !path.endsWith('/')) || Object.hasOwn(PASSED, path)) {
    const allow = Object.hasOwn(PASSED, path) ? PASSED[path]! : ANY_METHOD
    return allow.split(', ').includes(method) ? { kind: 'pass', path } : wrongMethod(allow)
  }
  return { kind: 'refused', code: 'ELDR_NOT_FOUND' }
}

function wrongMethod(allow: string): Route {
  return { kind: 'refused', code: 'ELDR_METHOD', allow }
}

/** What may stand in a path that a worker is asked at: an encoded character (%65mbeddings) may be another path to it than to us. */
const PLAIN = /^\/[\w.~!$&'()*+,;=:@/-]*$/
const TRICKS = /\/\.{1,2}(\/|$)|\/\/|%2e|%2f|%5c|\\/i

/** Without its query. A client that takes us for a proxy gives a whole address: whom it names is not looked at. */
function pathOf(url: string): string | undefined {
  const path = url.replace(/^https?:\/\/[^/?#]*/i, '').split('?', 1)[0]!
  if (path === '*' || path === '') return path
  return !TRICKS.test(path) && (PLAIN.test(path) || path.startsWith('/eldr/')) ? path : undefined
}
