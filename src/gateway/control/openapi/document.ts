/**
 * The OpenAPI document: operations with what every route has in common put in. It is made for a gateway with its settings, so that it says
 * what this one serves and asks for; `test/gateway/openapi*.test.ts` hold it against the routes and against what a gateway answers.
 */
import { VERSION } from '../../../version.ts'
import type { RefusalCode } from '../../http/refusal.ts'
import type { Settings } from '../../config/settings.ts'
import { ADMIN_OPERATIONS, DASHBOARD_OPERATIONS } from './admin-operations.ts'
import { HEADERS, schemas, SECURITY_SCHEMES } from './components.ts'
import { GENERATE_OPERATIONS, PASSED_OPERATIONS } from './openai-operations.ts'
import {
  type Access,
  type Answer,
  type Json,
  type JsonObject,
  type Media,
  type Operation,
  TAGS,
} from './operation.ts'
import { OWN_OPERATIONS, PAGE_OPERATIONS } from './own-operations.ts'
import { ref, refusalComponents, refusalsFor } from './refusals.ts'

/** What of the settings shows in the document. */
export interface Shape {
  readonly clientKeys: boolean
  readonly adminToken: boolean
  readonly dashboard: Settings['observe']['dashboard']
  readonly metrics: boolean
  /** Another process decides, and may be away. */
  readonly processes: boolean
}

/** A gateway with keys and token, and with all routes: docs/openapi.json. */
export const WHOLE: Shape = {
  clientKeys: true,
  adminToken: true,
  dashboard: 'admin',
  metrics: true,
  processes: true,
}

export function shapeOf({ server, observe }: Settings): Shape {
  const { apiKeys, adminToken, metricsPort, processes } = server
  return {
    clientKeys: apiKeys.length > 0,
    adminToken: adminToken !== undefined,
    dashboard: observe.dashboard,
    metrics: metricsPort === undefined,
    processes: processes > 1,
  }
}

/** These need nobody else. */
const ANSWERED_BY_RELAYS = new Set(['/health', '/ready', '/version'])

export function operationsOf({ dashboard, metrics, processes }: Shape): readonly Operation[] {
  const all = [
    ...GENERATE_OPERATIONS,
    ...PASSED_OPERATIONS,
    ...ADMIN_OPERATIONS,
    ...(dashboard === 'off' ? [] : [...DASHBOARD_OPERATIONS, ...PAGE_OPERATIONS]),
    ...OWN_OPERATIONS.filter(({ path }) => metrics || path !== '/metrics'),
  ]
  if (!processes) return all
  return all.map(operation =>
    ANSWERED_BY_RELAYS.has(operation.path)
      ? operation
      : { ...operation, refuses: [...operation.refuses, 'ELDR_OWNER_AWAY'] },
  )
}

export function openApiDocument(shape: Shape): JsonObject {
  const paths: Record<string, Record<string, Json>> = {}
  const operations = operationsOf(shape)
  for (const operation of operations)
    (paths[operation.path] ??= {})[operation.method] = operationObject(operation, shape)
  return {
    openapi: '3.1.0',
    info: {
      title: 'ELDR gateway',
      version: VERSION,
      description:
        'Decode router for prefill–decode disaggregated mixture-of-experts serving. Every GET may be a HEAD. Another method than those of a route is answered with 405 and Allow, another path with 404, both with an Error. An X-Request-Id of the client is kept where it can be.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas: schemas(),
      responses: refusalComponents(
        operations.map(operation => [
          codesOf(operation.access, operation.refuses, shape),
          operation.passesRefusals === true,
        ]),
      ),
      headers: HEADERS,
      securitySchemes: SECURITY_SCHEMES,
    },
  }
}

function operationObject(operation: Operation, shape: Shape): JsonObject {
  const { id, tag, summary, description, access, parameters, body, refuses } = operation
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(description !== undefined && { description }),
    security: securityOf(access, shape),
    ...(parameters && {
      parameters: parameters.map(parameter => ({ required: parameter.in === 'path', ...parameter })),
    }),
    ...(body && { requestBody: { required: body.required, content: contentOf(body.content) } }),
    responses: responsesOf(operation, codesOf(access, refuses, shape)),
  }
}

/** The name of the scheme that a request must bring, where it must. */
function schemeFor(access: Access, { clientKeys, adminToken, dashboard }: Shape): string | undefined {
  if (access === 'client') return clientKeys ? 'clientKey' : undefined
  if (access === 'anybody' || (access === 'watcher' && dashboard === 'open')) return undefined
  return adminToken ? 'adminToken' : undefined
}

function securityOf(access: Access, shape: Shape): Json {
  const scheme = schemeFor(access, shape)
  return scheme === undefined ? [] : [{ [scheme]: [] }]
}

/** Without a token the admin API is for the machine itself: others hear 403. */
function codesOf(access: Access, refuses: readonly RefusalCode[], shape: Shape): readonly RefusalCode[] {
  const needed = schemeFor(access, shape) !== undefined
  const local = access === 'admin' || (access === 'watcher' && shape.dashboard !== 'open')
  const guards = needed ? (['ELDR_UNAUTHORIZED'] as const) : local ? (['ELDR_FORBIDDEN'] as const) : []
  return [...guards, ...refuses.filter(code => code !== 'ELDR_UNAUTHORIZED')]
}

function responsesOf(
  { answers, passesRefusals = false }: Operation,
  codes: readonly RefusalCode[],
): JsonObject {
  const good = Object.entries(answers).map(([status, answer]) => [status, answerObject(answer)])
  return { ...(Object.fromEntries(good) as JsonObject), ...refusalsFor(codes, passesRefusals) }
}

function answerObject({ words, content, headers = {}, links }: Answer): JsonObject {
  const named = Object.entries({ 'X-Request-Id': 'RequestId', ...headers }).map(([name, component]) => [
    name,
    ref('headers', component),
  ])
  return {
    description: words,
    headers: Object.fromEntries(named) as JsonObject,
    ...(content && { content: contentOf(content) }),
    ...(links && { links }),
  }
}

function contentOf(content: Readonly<Record<string, Media>>): JsonObject {
  return Object.fromEntries(
    Object.entries(content).map(([type, { schema, example, events }]) => [
      type,
      {
        ...(schema !== undefined && { schema: typeof schema === 'string' ? ref('schemas', schema) : schema }),
        ...(example !== undefined && { example }),
        ...(events && {
          'x-events': Object.fromEntries(
            Object.entries(events).map(([kind, name]) => [kind, ref('schemas', name)]),
          ),
        }),
      },
    ]),
  )
}
