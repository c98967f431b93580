/**
 * Operations of the admin API. They need the admin token; without one they serve loopback connections only.
 */
import { REPLACE_PATH } from '../admin/replace-routes.ts'
import { ID } from '../admin/routes.ts'
import { ORIGIN_EXAMPLE } from '../../config/origin.ts'
import { json, type JsonObject, type Operation, type Parameter } from './operation.ts'

const EVENTS = 'text/event-stream'
/** Errors while reading a request body. */
const READ = [
  'ELDR_BODY_TOO_LARGE',
  'ELDR_REQUEST_TIMEOUT',
  'ELDR_DEADLINE',
  'ELDR_DRAINING',
  'ELDR_REPLACING',
] as const

const id = (of: string, example: string): Parameter => ({
  name: 'id',
  in: 'path',
  description: `Id of the ${of}.`,
  schema: { type: 'string', pattern: ID.source },
  example,
})
const WORKER_ID = id('worker', 'd2')
const EXPERIMENT_ID = id('experiment', '4f1c09ab7d2e')
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
  drain: withId('drainWorker', 'Drain it.'),
  undrain: withId('undrainWorker', 'Undrain it.'),
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
  body: method === 'post' ? { required: false, content: json('Nothing', {}) } : undefined,
  responses: { 200: { text: 'State of the worker after the change.', content: json('Worker', WORKER) } },
  refuses: ['ELDR_WORKER_UNKNOWN', 'ELDR_NOT_FOUND', ...READ],
})

const changesRouting = (
  operation: Pick<Operation, 'method' | 'path' | 'id' | 'summary' | 'body' | 'refuses'>,
): Operation => ({
  tag: 'routing',
  access: 'admin',
  responses: { 200: { text: 'The new routing configuration.', content: json('Routing', ROUTING) } },
  ...operation,
})

const look = (path: string, operationId: string, summary: string, schema: string): Operation => ({
  method: 'get',
  path,
  id: operationId,
  tag: 'look',
  summary,
  access: 'admin',
  responses: { 200: { text: 'The current state.', content: json(schema) } },
  refuses: [],
})

const adapts = (path: string, operationId: string, summary: string): Operation => ({
  method: 'post',
  path,
  id: operationId,
  tag: 'routing',
  summary,
  access: 'admin',
  body: { required: false, content: json('Nothing', {}) },
  responses: { 200: { text: 'The state after the change.', content: json('Adapt') } },
  refuses: ['ELDR_ADAPT_REFUSED', ...READ],
})

const follow = (
  path: string,
  operationId: string,
  summary: string,
  events: Readonly<Record<string, string>>,
): Operation => ({
  ...look(path, operationId, summary, ''),
  description: 'The stream continues until the client disconnects or the gateway stops.',
  responses: {
    200: {
      text: 'Server-sent events. A `lost` event reports events that a slow reader missed.',
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
    description: 'The worker gets requests after its first successful health check.',
    access: 'admin',
    body: { required: true, content: json('NewWorker', { url: ORIGIN_EXAMPLE, role: 'decode', id: 'd2' }) },
    responses: {
      200: {
        text: 'The same worker already exists.',
        content: json('Worker', WORKER),
        links: WORKER_LINKS,
      },
      201: { text: 'The worker was added.', content: json('Worker', WORKER), links: WORKER_LINKS },
    },
    refuses: ['ELDR_WORKER_CONFLICT', ...READ],
  },
  changed('delete', '/eldr/workers/{id}', 'removeWorker', 'Remove a worker. Running requests may finish'),
  changed('post', '/eldr/workers/{id}/drain', 'drainWorker', 'Drain a worker: no new requests'),
  changed('post', '/eldr/workers/{id}/undrain', 'undrainWorker', 'Undrain a worker'),
  changesRouting({
    method: 'put',
    path: '/eldr/policy',
    id: 'changePolicy',
    summary: 'Change policies and τ',
    body: { required: true, content: json('PolicyChange', { policy: 'jsq' }) },
    refuses: ['ELDR_POLICY_LACKS', 'ELDR_EXPERIMENT_RUNNING', ...READ],
  }),
  changesRouting({
    method: 'post',
    path: '/eldr/artifact',
    id: 'loadArtifact',
    summary: 'Load another artifact',
    body: {
      required: true,
      content: {
        ...json('ArtifactPath', { path: 'task.artifact.safetensors' }),
        'application/octet-stream': { schema: {} },
      },
    },
    refuses: [
      'ELDR_ARTIFACT_BAD',
      'ELDR_ARTIFACT_UNSAVED',
      'ELDR_POLICY_LACKS',
      'ELDR_EXPERIMENT_RUNNING',
      ...READ,
    ],
  }),
  changesRouting({
    method: 'post',
    path: '/eldr/refit',
    id: 'refit',
    summary: 'Refit the clusters',
    body: { required: false, content: json('RefitOrder', { workers: 4 }) },
    refuses: ['ELDR_REFIT_REFUSED', 'ELDR_EXPERIMENT_RUNNING', ...READ],
  }),
  {
    ...look('/eldr/experiment', 'getExperiment', 'The running experiment', 'Experiment'),
    tag: 'routing',
    access: 'viewer',
  },
  {
    method: 'post',
    path: '/eldr/experiment',
    id: 'startExperiment',
    tag: 'routing',
    summary: 'Start a switchback experiment',
    description:
      'Until it ends, policy, artifact and clusters are changed by the experiment only. `eldr experiment` is a client.',
    access: 'admin',
    body: {
      required: true,
      content: json('NewExperiment', { policies: ['jsq', 'union'], leaseMs: 10_000 }),
    },
    responses: {
      201: {
        text: 'The experiment has started.',
        content: json('Experiment', {
          running: true,
          id: '4f1c09ab7d2e',
          policies: ['jsq', 'union'],
          slot: 0,
          policy: 'union',
          restores: 'union',
          leaseMs: 10_000,
        }),
        links: {
          slot: withId('continueExperiment', 'Start a slot, or renew the lease.'),
          end: withId('endExperiment', 'End it.'),
        },
      },
    },
    refuses: ['ELDR_EXPERIMENT_RUNNING', 'ELDR_EXPERIMENT_REFUSED', 'ELDR_POLICY_LACKS', ...READ],
  },
  {
    ...look(
      '/eldr/experiment/{id}',
      'continueExperiment',
      'Start the next slot, or renew the lease',
      'Experiment',
    ),
    method: 'put',
    tag: 'routing',
    description: 'Ends the current slot and returns its measurements. An empty body only renews the lease.',
    parameters: [EXPERIMENT_ID],
    body: { required: false, content: json('ExperimentSlot', { policy: 'jsq', washoutMs: 15_000 }) },
    refuses: ['ELDR_EXPERIMENT_UNKNOWN', 'ELDR_EXPERIMENT_REFUSED', 'ELDR_NOT_FOUND', ...READ],
  },
  {
    ...look(
      '/eldr/experiment/{id}',
      'endExperiment',
      'End the experiment and restore the policy',
      'Experiment',
    ),
    method: 'delete',
    tag: 'routing',
    description: 'Returns the measurements of the last slot.',
    parameters: [EXPERIMENT_ID],
    refuses: ['ELDR_EXPERIMENT_UNKNOWN', 'ELDR_NOT_FOUND', 'ELDR_REPLACING'],
  },
  {
    ...look('/eldr/adapt', 'getAdapt', 'Live recalibration: drift, sample, last refit and swaps', 'Adapt'),
    tag: 'routing',
    access: 'viewer',
  },
  adapts('/eldr/adapt/swap', 'adaptSwap', 'Swap to the artifact that live recalibration suggests'),
  adapts('/eldr/adapt/undo', 'adaptUndo', 'Undo the swap in force: return to the artifact before it'),
  look('/eldr/log-level', 'getLogLevel', 'Get the log level', 'LogLevel'),
  {
    method: 'put',
    path: '/eldr/log-level',
    id: 'changeLogLevel',
    tag: 'look',
    summary: 'Change the log level, permanently or for a limited time',
    access: 'admin',
    body: { required: true, content: json('LogLevelChange', { level: 'debug', forMs: 60_000 }) },
    responses: {
      200: {
        text: 'The new log level.',
        content: json('LogLevel', { level: 'debug', configured: 'info' }),
      },
    },
    refuses: [...READ],
  },
  {
    method: 'post',
    path: REPLACE_PATH,
    id: 'replaceGateway',
    tag: 'look',
    summary: 'Replace the gateway by a new process',
    description:
      'Starts the command line of the gateway again, which reads its program and files again. Responds when the new process serves; the old one then finishes its requests. If the new process fails, the old one continues.',
    access: 'admin',
    body: { required: false, content: json('Nothing', {}) },
    responses: {
      200: { text: 'The new process.', content: json('Replaced', { pid: 4711, version: '0.1.0' }) },
    },
    refuses: ['ELDR_REPLACE_FAILED', ...READ],
  },
  {
    ...look('/eldr/decisions', 'listDecisions', 'Recent routing decisions', 'Decisions'),
    parameters: [
      {
        name: 'limit',
        in: 'query',
        description: 'Max number of decisions.',
        schema: { type: 'integer', minimum: 1, maximum: 999_999, default: 50 },
      },
    ],
  },
  {
    ...look('/eldr/requests/{id}', 'getRequest', 'State and history of a request', 'RequestView'),
    access: 'viewer',
    parameters: [id('request', 'mine-1')],
    refuses: ['ELDR_REQUEST_UNKNOWN', 'ELDR_NOT_FOUND'],
  },
  {
    ...look('/eldr/shadow', 'getShadow', 'What shadow policies would have decided', 'Shadow'),
    access: 'viewer',
  },
  look('/eldr/config', 'getConfig', 'Current settings, with secrets masked', 'ConfigView'),
  follow('/eldr/events', 'followEvents', 'Stream of decisions and changes', {
    decision: 'Decision',
    worker: 'WorkerChange',
    routing: 'RoutingChange',
    adapt: 'AdaptEvent',
    lost: 'LostEvents',
  }),
]

/** Disabled if observe.dashboard is off. */
export const DASHBOARD_OPERATIONS: readonly Operation[] = [
  {
    ...look('/eldr/dashboard', 'welcome', 'Access rights of the client', 'Welcome'),
    tag: 'dashboard',
    access: 'public',
  },
  {
    ...look('/eldr/experts', 'getExperts', 'Active experts of each decode worker', 'Experts'),
    tag: 'dashboard',
    access: 'viewer',
    parameters: [
      {
        name: 'expected',
        in: 'query',
        description: '1: include the experts that the policy union expects.',
        schema: { type: 'string', enum: ['0', '1'] },
      },
    ],
  },
  {
    ...look(
      '/eldr/plane',
      'getPlane',
      'Calibration requests and centroids, projected to two dimensions',
      'Plane',
    ),
    tag: 'dashboard',
    access: 'viewer',
  },
  {
    ...follow('/eldr/pulse', 'followPulse', 'Stream of dashboard updates, two per second', {
      hello: 'Hello',
      pulse: 'Pulse',
      lost: 'LostEvents',
    }),
    tag: 'dashboard',
    access: 'viewer',
  },
]
