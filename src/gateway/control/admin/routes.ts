/** Routes of the admin API as a table, and which of them a request is for. */
import type { RoutingControl } from '../../routing/routing-control.ts'
import { Refusal } from '../../http/refusal.ts'
import { WORKER_ID } from '../../config/worker-id.ts'
import type { Discovery } from '../discovery/discovery.ts'
import type { Replicas } from '../../scale/replicas/replicas.ts'
import type { GatewayContext } from '../../flow/context.ts'
import type { Exchange } from '../../http/exchange.ts'
import type { StoryView } from '../../observe/insight/wire.ts'

/** What other processes know of requests. */
export interface LookElsewhere {
  request(id: string): Promise<readonly SeenRequest[]>
}

export interface SeenRequest {
  readonly live: readonly { readonly path: string | undefined; readonly seconds: number }[]
  readonly story?: StoryView
}

/** What the routes look at and change. */
export interface AdminParts {
  readonly ctx: GatewayContext
  readonly control: RoutingControl
  /** Requests that are under way. */
  live(): Iterable<Exchange>
  /** Where requests come to other processes. */
  readonly elsewhere?: LookElsewhere
  /** Absent where nothing is discovered. */
  readonly discovery?: Pick<Discovery, 'statuses' | 'summary'>
  /** Absent where this gateway is alone. They are told of what was changed here. */
  readonly replicas?: Pick<Replicas, 'status' | 'changedPolicy' | 'loadedArtifact' | 'refitted' | 'drained'>
}

export interface AdminCall {
  readonly exchange: Exchange
  /** What stands in the path for {id}; empty where there is none. */
  readonly id: string
  readonly query: URLSearchParams
  /** Tells a client that waits for leave to send its body. */
  proceed(): void
}

export interface AdminAnswer {
  readonly status: number
  readonly body: object
}

export interface AdminRoute {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly path: string
  run(call: AdminCall): AdminAnswer | Promise<AdminAnswer>
}

/** Ids of workers and of requests alike. */
export const ID = WORKER_ID

/** The route, or which methods its path would take. Paths come without dots and doubled slashes (`routes.ts` of the gateway refuses those). */
export function findRoute<Route extends Pick<AdminRoute, 'method' | 'path'>>(
  routes: readonly Route[],
  method: string,
  path: string,
): { readonly route: Route; readonly id: string } | { readonly allow: string } {
  const here = routes.flatMap(route => {
    const id = idIn(route.path, path)
    return id === undefined ? [] : [{ route, id }]
  })
  const wanted = method === 'HEAD' ? 'GET' : method
  const found = here.find(({ route }) => route.method === wanted)
  if (found !== undefined) return found
  if (here.length === 0) throw new Refusal('ELDR_NOT_FOUND')
  return { allow: here.map(({ route: { method } }) => (method === 'GET' ? 'GET, HEAD' : method)).join(', ') }
}

function idIn(pattern: string, path: string): string | undefined {
  const [wanted, given] = [pattern.split('/'), path.split('/')]
  if (wanted.length !== given.length) return undefined
  let id = ''
  for (const [at, part] of wanted.entries()) {
    if (part === '{id}') id = decoded(given[at]!)
    else if (part !== given[at]) return undefined
  }
  return pattern.includes('{id}') && !ID.test(id) ? undefined : id
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return '' // no id
  }
}
