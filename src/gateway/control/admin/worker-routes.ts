/** Adds, drains and removes workers at runtime. Running requests may always finish. */
import type { WorkerView } from '../../../cluster/registry.ts'
import { isSamePlace, placeText, type Role, type WorkerSpec } from '../../../cluster/worker.ts'
import { Refusal } from '../../http/refusal.ts'
import { addressOf, MAX_RANKS, workerUrlOf, workerUrlProblem } from '../../config/origin.ts'
import { rankedName, WORKER_ID_EXPECTED } from '../../config/worker-id.ts'
import { badRequest, type Fields, nameOf, readFields, wholeOf } from './read-json.ts'
import type { AdminParts } from './admin-context.ts'
import { type AdminRoute, ID } from './routes.ts'

export const ROLES = ['prefill', 'decode'] as const satisfies readonly Role[]
/** Each worker has health checks, connections and metric series, so their number is limited. */
export const MAX_WORKERS = 1_024

export function workerRoutes({ ctx, control, discovery, replicas }: AdminParts): AdminRoute[] {
  const { registry, log } = ctx
  const views = () => registry.views(performance.now())
  const shown = ({
    spec,
    index,
    state,
    breaker,
    inflight,
    inflightElsewhere,
    tokens,
    leaving,
  }: WorkerView) => {
    const { id, role, url, dpRank, source } = spec
    const cluster = role === 'decode' ? control.clusterOf(index) : undefined
    return {
      id,
      role,
      url,
      dpRank,
      state: leaving ? 'leaving' : state,
      breaker,
      inflight,
      inflightElsewhere: replicas && inflightElsewhere,
      tokens,
      index,
      cluster,
      source,
    }
  }
  const sharedDrain = (id: string, drained: boolean) => {
    const known = drained ? registry.drain(id) : registry.undrain(id)
    if (known) replicas?.drained(id, drained)
    return known
  }
  const show = (id: string) => shown(views().find(({ spec }) => spec.id === id)!)

  /** A route that changes one worker. `change` returns false if there is no such worker. */
  const changing = (
    method: AdminRoute['method'],
    path: string,
    change: (id: string) => boolean,
    message: string,
  ): AdminRoute => ({
    method,
    path,
    async run({ exchange, id, proceed }) {
      await readFields(exchange, proceed, [])
      const before = views().find(({ spec, leaving }) => spec.id === id && !leaving)
      if (before === undefined || !change(id)) throw new Refusal('ELDR_WORKER_UNKNOWN')
      log.info({ worker: id }, message)
      const after = views().find(({ spec }) => spec.id === id)
      return { status: 200, body: after === undefined ? { ...shown(before), state: 'gone' } : shown(after) }
    },
  })

  return [
    {
      method: 'GET',
      path: '/eldr/workers',
      run: () => ({
        status: 200,
        body: { workers: views().map(shown), discovery: discovery?.statuses() },
      }),
    },
    {
      method: 'POST',
      path: '/eldr/workers',
      async run({ exchange, proceed }) {
        const spec = specOf(await readFields(exchange, proceed, ['url', 'role', 'id', 'dpRank', 'cluster']))
        const others = views().filter(({ leaving, spec: other }) => !leaving && other.id !== spec.id)
        if (others.length >= MAX_WORKERS)
          throw new Refusal('ELDR_WORKER_CONFLICT', { words: `Limit of ${MAX_WORKERS} workers reached.` })
        const there = others.find(({ spec: other }) => isSamePlace(other, spec))
        if (there !== undefined)
          throw new Refusal('ELDR_WORKER_CONFLICT', {
            words: `${there.spec.id} already has this address, ${placeText(there.spec)}.`,
            param: 'url',
          })
        const outcome = registry.add(spec)
        if (outcome === 'id_taken')
          throw new Refusal('ELDR_WORKER_CONFLICT', {
            words: `Another worker has the id ${spec.id}.`,
            param: 'id',
          })
        if (outcome === 'cluster_taken')
          throw new Refusal('ELDR_WORKER_CONFLICT', {
            words: `Another worker has cluster ${spec.cluster}.`,
            param: 'cluster',
          })
        if (outcome === 'added') log.info({ worker: spec.id, role: spec.role }, 'worker added')
        return { status: outcome === 'added' ? 201 : 200, body: show(spec.id) }
      },
    },
    changing('DELETE', '/eldr/workers/{id}', id => registry.remove(id), 'worker removed'),
    changing('POST', '/eldr/workers/{id}/drain', id => sharedDrain(id, true), 'worker drained'),
    changing('POST', '/eldr/workers/{id}/undrain', id => sharedDrain(id, false), 'worker undrained'),
  ]
}

/** Validates a worker like the configuration does. */
function specOf(fields: Fields): WorkerSpec {
  const role = nameOf(fields, 'role', ROLES)
  if (role === undefined) throw badRequest('role is missing: expected prefill or decode.', 'role')
  const { url, id } = fields
  const problem = typeof url === 'string' ? workerUrlProblem(url) : 'expected a URL'
  if (typeof url !== 'string' || problem !== undefined) throw badRequest(`url: ${problem}.`, 'url')
  if (id !== undefined && (typeof id !== 'string' || !ID.test(id)))
    throw badRequest(`id must be ${WORKER_ID_EXPECTED}`, 'id')
  const cluster = wholeOf(fields, 'cluster', 0, MAX_WORKERS - 1)
  if (cluster !== undefined && role === 'prefill')
    throw badRequest('A prefill worker has no cluster.', 'cluster')
  const rank = wholeOf(fields, 'dpRank', 0, MAX_RANKS - 1)
  const { url: origin, dpRank = rank } = workerUrlOf(url)
  if (rank !== undefined && dpRank !== rank)
    throw badRequest('The rank in url differs from dpRank: set only one of them.', 'dpRank')
  const name = dpRank === undefined ? addressOf(origin) : rankedName(addressOf(origin), dpRank)
  return {
    id: id ?? name,
    role,
    url: origin,
    dpRank,
    cluster,
    source: 'admin',
  }
}
