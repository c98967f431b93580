/** Routes by path. */
import type { RefusalCode } from './refusal.ts'
import type { Api } from './client-request.ts'

export type Route =
  | { readonly kind: 'generate'; readonly api: Api; readonly path: string }
  /** Passed through to one worker. */
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
/** Routes without a decode phase, or internal to an engine. */
const NOT_GENERATION =
  /^\/v1\/(embeddings|rerank|score|audio|images|moderations|fine_tuning|files|batches|load_lora_adapter|unload_lora_adapter)\b/
/** Passed through like all other paths under /v1/, with the methods that every engine allows. */
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

/**
 * Characters allowed in a passed-through path: a worker may decode an escape such as %65mbeddings to another
 * path.
 */
const PLAIN = /^\/[\w.~!$&'()*+,;=:@/-]*$/
const TRICKS = /\/\.{1,2}(\/|$)|\/\/|%2e|%2f|%5c|\\/i

/** The path without its query. An absolute URL, as sent to a proxy, is accepted; its host is ignored. */
function pathOf(url: string): string | undefined {
  const path = url.replace(/^https?:\/\/[^/?#]*/i, '').split('?', 1)[0]!
  if (path === '*' || path === '') return path
  return !TRICKS.test(path) && (PLAIN.test(path) || path.startsWith('/eldr/')) ? path : undefined
}
