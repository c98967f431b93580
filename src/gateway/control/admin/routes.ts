/** Route table of the admin API and route matching. */
import { WORKER_ID } from '../../config/worker-id.ts'
import type { Exchange } from '../../http/exchange.ts'
import { Refusal } from '../../http/refusal.ts'

export interface AdminCall {
  readonly exchange: Exchange
  /** The path segment that matched {id}; empty if the route has none. */
  readonly id: string
  readonly query: URLSearchParams
  /** Sends 100 Continue to a client that waits for it before sending its body. */
  proceed(): void
}

export interface AdminResponse {
  readonly status: number
  readonly body: object
}

export interface AdminRoute {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly path: string
  run(call: AdminCall): AdminResponse | Promise<AdminResponse>
}

/** Pattern of worker ids and request ids. */
export const ID = WORKER_ID

/**
 * Returns the matching route, or the methods that the path allows. `http/routes.ts` has already rejected
 * paths with dot segments or double slashes.
 */
export function findRoute<Route extends Pick<AdminRoute, 'method' | 'path'>>(
  routes: readonly Route[],
  method: string,
  path: string,
): { readonly route: Route; readonly id: string } | { readonly allow: string } {
  const matching = routes.flatMap(route => {
    const id = idIn(route.path, path)
    return id === undefined ? [] : [{ route, id }]
  })
  const wanted = method === 'HEAD' ? 'GET' : method
  const found = matching.find(({ route }) => route.method === wanted)
  if (found !== undefined) return found
  if (matching.length === 0) throw new Refusal('ELDR_NOT_FOUND')
  return {
    allow: matching.map(({ route: { method } }) => (method === 'GET' ? 'GET, HEAD' : method)).join(', '),
  }
}

function idIn(pattern: string, path: string): string | undefined {
  const [wanted, segments] = [pattern.split('/'), path.split('/')]
  if (wanted.length !== segments.length) return undefined
  let id = ''
  for (const [at, part] of wanted.entries()) {
    if (part === '{id}') id = decoded(segments[at]!)
    else if (part !== segments[at]) return undefined
  }
  return pattern.includes('{id}') && !ID.test(id) ? undefined : id
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return '' // matches no id
  }
}
