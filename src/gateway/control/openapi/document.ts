/**
 * Builds the OpenAPI document of a gateway from its settings: the routes it serves and the authentication it
 * requires. `test/gateway/openapi*.test.ts` compare it with the routes and with real responses.
 */
import { VERSION } from '../../../version.ts'
import type { RefusalCode } from '../../http/refusal.ts'
import type { Settings } from '../../config/settings.ts'
import { ADMIN_OPERATIONS, DASHBOARD_OPERATIONS } from './admin-operations.ts'
import { HEADERS, schemas, SECURITY_SCHEMES } from './components.ts'
import { GENERATE_OPERATIONS, PASSED_OPERATIONS } from './openai-operations.ts'
import {
  type Access,
  type Json,
  type JsonObject,
  type Media,
  type Operation,
  type ResponseSpec,
  TAGS,
} from './operation.ts'
import { OWN_OPERATIONS, PAGE_OPERATIONS } from './own-operations.ts'
import { ref, refusalComponents, refusalsFor } from './refusals.ts'

/** The settings that affect the document. */
export interface Shape {
  readonly clientKeys: boolean
  readonly adminToken: boolean
  readonly dashboard: Settings['observe']['dashboard']
  readonly metrics: boolean
  /** Decisions are made by another process, which may be unavailable. */
  readonly processes: boolean
}

/** A gateway with API keys, admin token and all routes, for docs/openapi.json. */
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

/** Routes that a relay process serves by itself. */
const SERVED_BY_RELAYS = new Set(['/health', '/ready', '/version'])

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
    SERVED_BY_RELAYS.has(operation.path)
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
        'Decode router for prefill–decode disaggregated mixture-of-experts serving. Every GET route also supports HEAD. Other methods get 405 with Allow, unknown paths 404, both with an Error body. A valid X-Request-Id of the client is kept.',
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

/** The security scheme that a request needs, if any. */
function schemeFor(access: Access, { clientKeys, adminToken, dashboard }: Shape): string | undefined {
  if (access === 'client') return clientKeys ? 'clientKey' : undefined
  if (access === 'public' || (access === 'viewer' && dashboard === 'open')) return undefined
  return adminToken ? 'adminToken' : undefined
}

function securityOf(access: Access, shape: Shape): Json {
  const scheme = schemeFor(access, shape)
  return scheme === undefined ? [] : [{ [scheme]: [] }]
}

/** Without a token the admin API serves loopback connections only; others get 403. */
function codesOf(access: Access, refuses: readonly RefusalCode[], shape: Shape): readonly RefusalCode[] {
  const needed = schemeFor(access, shape) !== undefined
  const local = access === 'admin' || (access === 'viewer' && shape.dashboard !== 'open')
  const guards = needed ? (['ELDR_UNAUTHORIZED'] as const) : local ? (['ELDR_FORBIDDEN'] as const) : []
  return [...guards, ...refuses.filter(code => code !== 'ELDR_UNAUTHORIZED')]
}

function responsesOf(
  { responses, passesRefusals = false }: Operation,
  codes: readonly RefusalCode[],
): JsonObject {
  const good = Object.entries(responses).map(([status, response]) => [status, responseObject(response)])
  return { ...(Object.fromEntries(good) as JsonObject), ...refusalsFor(codes, passesRefusals) }
}

function responseObject({ text, content, headers = {}, links }: ResponseSpec): JsonObject {
  const named = Object.entries({ 'X-Request-Id': 'RequestId', ...headers }).map(([name, component]) => [
    name,
    ref('headers', component),
  ])
  return {
    description: text,
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
