/** Named components of the document: schemas, headers and security schemes. */
import * as z from 'zod'
import { adapt, adaptEvent } from './adapt-schemas.ts'
import * as admin from './admin-schemas.ts'
import * as live from './live-schemas.ts'
import * as openai from './openai-schemas.ts'
import type { Json, JsonObject } from './operation.ts'
import * as pulse from './pulse-schemas.ts'
import { settingsSchema } from './settings-schema.ts'

const SCHEMAS = {
  CompletionRequest: openai.completionRequest,
  Completion: openai.completion,
  CompletionChunk: openai.completionChunk,
  ChatCompletionRequest: openai.chatRequest,
  ChatCompletion: openai.chatCompletion,
  ChatCompletionChunk: openai.chatChunk,
  Models: openai.models,
  TokenizeRequest: openai.tokenizeRequest,
  Tokens: openai.tokens,
  DetokenizeRequest: openai.detokenizeRequest,
  DetokenizedText: openai.text,
  Error: openai.gatewayError,
  WorkerError: openai.workerError,
  Worker: admin.worker,
  Workers: admin.workers,
  NewWorker: admin.newWorker,
  Nothing: admin.nothing,
  Replaced: admin.replaced,
  PolicyChange: admin.policyChange,
  ArtifactPath: admin.artifactPath,
  RefitOrder: admin.refitOrder,
  Routing: admin.routingView,
  Shadow: admin.shadowView,
  Experiment: admin.experimentView,
  NewExperiment: admin.newExperiment,
  ExperimentSlot: admin.experimentSlot,
  Adapt: adapt,
  AdaptEvent: adaptEvent,
  LogLevelChange: admin.logLevelChange,
  LogLevel: admin.logLevelView,
  Decision: live.decision,
  Decisions: live.decisions,
  RequestView: live.requestView,
  Welcome: live.welcome,
  Experts: live.experts,
  Plane: live.plane,
  RoutingChange: live.routingChange,
  WorkerChange: live.workerChange,
  LostEvents: live.lost,
  Hello: pulse.hello,
  Pulse: pulse.pulse,
  Health: z.strictObject({ status: z.literal('ok') }),
  Readiness: admin.readiness,
  Version: z.strictObject({ version: z.string() }),
} as const satisfies Record<string, z.ZodType>

export const HEADERS: JsonObject = {
  RequestId: {
    description:
      'The client’s X-Request-Id if it is valid (1 to 128 of A–Z a–z 0–9 _ . : -), else a new one.',
    required: true,
    schema: { type: 'string', pattern: '^[A-Za-z0-9_.:-]{1,128}$' },
  },
  ErrorCode: { description: 'error.code of the body.', schema: { type: 'string', enum: openai.CODES } },
  RetryAfter: {
    description: 'Seconds to wait before a retry.',
    schema: { type: 'integer', minimum: 1 },
  },
  Authenticate: {
    description: 'A bearer token is required.',
    required: true,
    schema: { type: 'string', const: 'Bearer' },
  },
  Allow: { description: 'Methods that the route supports.', schema: { type: 'string' } },
  PrefillWorker: {
    description: 'Prefill worker of the request. Only with X-Eldr-Debug or observe.debugHeaders.',
    schema: { type: 'string' },
  },
  DecodeWorker: {
    description: 'Decode worker of the request. Only with X-Eldr-Debug or observe.debugHeaders.',
    schema: { type: 'string' },
  },
  Reason: {
    description: 'Why the decode worker was chosen. Only with X-Eldr-Debug or observe.debugHeaders.',
    schema: { type: 'string' },
  },
  Etag: { description: 'Hash of the file.', schema: { type: 'string' } },
  Location: { description: 'The new location.', schema: { type: 'string' } },
}

export const SECURITY_SCHEMES: JsonObject = {
  clientKey: {
    type: 'http',
    scheme: 'bearer',
    description: 'One of server.apiKeys. May also be sent as X-Api-Key.',
  },
  adminToken: {
    type: 'http',
    scheme: 'bearer',
    description: 'server.adminToken. May also be sent as X-Api-Key.',
  },
}

export function schemas(): JsonObject {
  const registry = z.registry<{ id: string }>()
  for (const [id, schema] of Object.entries(SCHEMAS)) registry.add(schema as z.ZodType, { id })
  const converted = z.toJSONSchema(registry, {
    io: 'input',
    uri: id => `#/components/schemas/${id}`,
    override: ({ jsonSchema }) => {
      // Write tuples as arrays: more tools support that than prefixItems.
      const { prefixItems } = jsonSchema
      if (prefixItems !== undefined) {
        jsonSchema.items = prefixItems[0]!
        delete jsonSchema.prefixItems
      }
      // zod limits integers to the safe integers of JavaScript; the API does not promise that.
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum
      if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum
    },
  })
  const plain = Object.entries(converted.schemas).map(
    ([id, { $schema: _dialect, $id: _uri, id: _id, ...schema }]) => [id, schema as Json],
  )
  return { ...(Object.fromEntries(plain) as JsonObject), Settings: settingsSchema(), ConfigView: CONFIG_VIEW }
}

const CONFIG_VIEW: JsonObject = {
  type: 'object',
  properties: {
    version: { type: 'string' },
    settings: { $ref: '#/components/schemas/Settings' },
    routing: { $ref: '#/components/schemas/Routing' },
  },
  required: ['version', 'settings', 'routing'],
  additionalProperties: false,
}
