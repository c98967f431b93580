/** The admin API. Where a token is set it is needed, elsewhere it answers on the machine itself only. */
import { ID } from '../admin/routes.ts'
import { ORIGIN_EXAMPLE } from '../../config/origin.ts'
import { json, type JsonObject, type Operation, type Parameter } from './operation.ts'

const EVENTS = 'text/event-stream'
/** A body is read within the time that a request may take. */
const READ = ['ELDR_BODY_TOO_LARGE', 'ELDR_REQUEST_TIMEOUT', 'ELDR_DEADLINE', 'ELDR_DRAINING'] as const

const id = (of: string, example: string): Parameter => ({
  name: 'id',
  in: 'path',
  description: `Id of the ${of}.`,
  schema: { type: 'string', pattern: ID.source },
  example,
})
const WORKER_ID = id('worker', 'd2')
const WORKER = {
  id: 'd2',
  role: 'decode',
  url: 'http://127.0.0.1:8103',
  state: 'unknown',
  breaker: 'closed',
  inflight: 0,
  tokens: 0,
  index: 2,
}
const ROUTING = { policy: 'jsq', tau: 0.1, prefillPolicy: 'prefix_hash', decodeWorkers: 4 }

const withId = (operationId: string, description: string): JsonObject => ({
  operationId,
  parameters: { id: '$response.body#/id' },
  description,
})
const WORKER_LINKS: JsonObject = {
  drain: withId('drainWorker', 'Take it out of rotation.'),
  undrain: withId('undrainWorker', 'Take it back.'),
  remove: withId('removeWorker', 'Remove it.'),
}

const changed = (
  method: Operation['method'],
  path: string,
  operationId: string,
  summary: string,
): Operation => ({
  method,
  path,
  id: operationId,
  tag: 'workers',
  summary,
  access: 'admin',
  parameters: [WORKER_ID],
  ...(method === 'post' && { body: { required: false, content: json('Nothing', {}) } }),
  answers: { 200: { words: 'The worker as it is then.', content: json('Worker', WORKER) } },
  refuses: ['ELDR_WORKER_UNKNOWN', 'ELDR_NOT_FOUND', ...READ],
})

const changesRouting = (
  operation: Pick<Operation, 'method' | 'path' | 'id' | 'summary' | 'body' | 'refuses'>,
): Operation => ({
  tag: 'routing',
  access: 'admin',
  answers: { 200: { words: 'How requests are routed from now on.', content: json('Routing', ROUTING) } },
  ...operation,
})

const look = (path: string, operationId: string, summary: string, schema: string): Operation => ({
  method: 'get',
  path,
  id: operationId,
  tag: 'look',
  summary,
  access: 'admin',
  answers: { 200: { words: 'As it is now.', content: json(schema) } },
  refuses: [],
})

const follow = (
  path: string,
  operationId: string,
  summary: string,
  events: Readonly<Record<string, string>>,
): Operation => ({
  ...look(path, operationId, summary, ''),
  description: 'The stream goes on until the client leaves or the gateway stops.',
  answers: {
    200: {
      words: 'Server-sent events; `lost` where the reader was too slow.',
      content: { [EVENTS]: { events } },
    },
  },
  refuses: ['ELDR_OVERLOADED', 'ELDR_DRAINING'],
})

export const ADMIN_OPERATIONS: readonly Operation[] = [
  { ...look('/eldr/workers', 'listWorkers', 'All workers', 'Workers'), tag: 'workers' },
  {
    method: 'post',
    path: '/eldr/workers',
    id: 'addWorker',
    tag: 'workers',
    summary: 'Add a worker',
    description: 'It takes requests after its first good health check.',
    access: 'admin',
    body: { required: true, content: json('NewWorker', { url: ORIGIN_EXAMPLE, role: 'decode', id: 'd2' }) },
    answers: {
      200: {
        words: 'It was there already, as it is asked for.',
        content: json('Worker', WORKER),
        links: WORKER_LINKS,
      },
      201: { words: 'It is added.', content: json('Worker', WORKER), links: WORKER_LINKS },
    },
    refuses: ['ELDR_WORKER_CONFLICT', ...READ],
  },
  changed('delete', '/eldr/workers/{id}', 'removeWorker', 'Remove a worker; what it has begun it may end'),
  changed('post', '/eldr/workers/{id}/drain', 'drainWorker', 'Take a worker out of rotation'),
  changed('post', '/eldr/workers/{id}/undrain', 'undrainWorker', 'Take a worker back into rotation'),
  changesRouting({
    method: 'put',
    path: '/eldr/policy',
    id: 'changePolicy',
    summary: 'Change policies and τ',
    body: { required: true, content: json('PolicyChange', { policy: 'jsq' }) },
    refuses: ['ELDR_POLICY_LACKS', ...READ],
  }),
  changesRouting({
    method: 'post',
    path: '/eldr/artifact',
    id: 'loadArtifact',
    summary: 'Route by another artifact',
    body: {
      required: true,
      content: {
        ...json('ArtifactPath', { path: 'task.artifact.safetensors' }),
        'application/octet-stream': { schema: {} },
      },
    },
    refuses: ['ELDR_ARTIFACT_BAD', 'ELDR_POLICY_LACKS', ...READ],
  }),
  changesRouting({
    method: 'post',
    path: '/eldr/refit',
    id: 'refit',
    summary: 'Fit the clusters anew',
    body: { required: false, content: json('RefitOrder', { workers: 4 }) },
    refuses: ['ELDR_REFIT_REFUSED', ...READ],
  }),
  look('/eldr/log-level', 'getLogLevel', 'How much is logged', 'LogLevel'),
  {
    method: 'put',
    path: '/eldr/log-level',
    id: 'changeLogLevel',
    tag: 'look',
    summary: 'Log more or less, for good or for a while',
    access: 'admin',
    body: { required: true, content: json('LogLevelChange', { level: 'debug', forMs: 60_000 }) },
    answers: {
      200: {
        words: 'How much is logged from now on.',
        content: json('LogLevel', { level: 'debug', configured: 'info' }),
      },
    },
    refuses: [...READ],
  },
  {
    ...look('/eldr/decisions', 'listDecisions', 'The last decisions', 'Decisions'),
    parameters: [
      {
        name: 'limit',
        in: 'query',
        description: 'How many at most.',
        schema: { type: 'integer', minimum: 1, maximum: 999_999, default: 50 },
      },
    ],
  },
  {
    ...look('/eldr/requests/{id}', 'getRequest', 'What became of a request', 'RequestView'),
    access: 'watcher',
    parameters: [id('request', 'mine-1')],
    refuses: ['ELDR_REQUEST_UNKNOWN', 'ELDR_NOT_FOUND'],
  },
  look('/eldr/config', 'getConfig', 'The settings in force, secrets masked', 'ConfigView'),
  follow('/eldr/events', 'followEvents', 'Decisions and changes as they happen', {
    decision: 'Decision',
    worker: 'WorkerChange',
    routing: 'RoutingChange',
    lost: 'LostEvents',
  }),
]

/** Not there where observe.dashboard is off. */
export const DASHBOARD_OPERATIONS: readonly Operation[] = [
  {
    ...look('/eldr/dashboard', 'welcome', 'What the caller may do', 'Welcome'),
    tag: 'dashboard',
    access: 'anybody',
  },
  {
    ...look('/eldr/experts', 'getExperts', 'The experts of each decode worker now', 'Experts'),
    tag: 'dashboard',
    access: 'watcher',
    parameters: [
      {
        name: 'expected',
        in: 'query',
        description: '1: with what the policy union expects.',
        schema: { type: 'string', enum: ['0', '1'] },
      },
    ],
  },
  {
    ...look('/eldr/plane', 'getPlane', 'Calibration requests and centroids in a plane', 'Plane'),
    tag: 'dashboard',
    access: 'watcher',
  },
  {
    ...follow('/eldr/pulse', 'followPulse', 'What the dashboard shows, twice a second', {
      hello: 'Hello',
      pulse: 'Pulse',
      lost: 'LostEvents',
    }),
    tag: 'dashboard',
    access: 'watcher',
  },
]
