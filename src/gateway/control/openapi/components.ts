/** Everything that operations refer to by name: schemas, headers, and who may ask. */
import * as z from 'zod'
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
  Error: openai.errorAnswer,
  WorkerError: openai.workerError,
  Worker: admin.worker,
  Workers: admin.workers,
  NewWorker: admin.newWorker,
  Nothing: admin.nothing,
  PolicyChange: admin.policyChange,
  ArtifactPath: admin.artifactPath,
  RefitOrder: admin.refitOrder,
  Routing: admin.routingView,
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
      'The client’s own X-Request-Id where it can stand in a log (1 to 128 of A–Z a–z 0–9 _ . : -), or a new one.',
    required: true,
    schema: { type: 'string', pattern: '^[A-Za-z0-9_.:-]{1,128}$' },
  },
  ErrorCode: { description: 'error.code of the body.', schema: { type: 'string', enum: openai.CODES } },
  RetryAfter: {
    description: 'Seconds after which it may be worth trying again.',
    schema: { type: 'integer', minimum: 1 },
  },
  Authenticate: {
    description: 'A bearer token is wanted.',
    required: true,
    schema: { type: 'string', const: 'Bearer' },
  },
  Allow: { description: 'Methods that the route takes.', schema: { type: 'string' } },
  PrefillWorker: {
    description: 'Which worker read the prompt. For those who may see it (X-Eldr-Debug).',
    schema: { type: 'string' },
  },
  DecodeWorker: {
    description: 'Which worker generated. For those who may see it (X-Eldr-Debug).',
    schema: { type: 'string' },
  },
  Reason: {
    description: 'Why that worker. For those who may see it (X-Eldr-Debug).',
    schema: { type: 'string' },
  },
  Etag: { description: 'Of the file’s bytes.', schema: { type: 'string' } },
  Location: { description: 'Where it is.', schema: { type: 'string' } },
}

export const SECURITY_SCHEMES: JsonObject = {
  clientKey: {
    type: 'http',
    scheme: 'bearer',
    description: 'One of server.apiKeys. It may be brought as X-Api-Key too.',
  },
  adminToken: {
    type: 'http',
    scheme: 'bearer',
    description: 'server.adminToken. It may be brought as X-Api-Key too.',
  },
}

export function schemas(): JsonObject {
  const registry = z.registry<{ id: string }>()
  for (const [id, schema] of Object.entries(SCHEMAS)) registry.add(schema as z.ZodType, { id })
  const made = z.toJSONSchema(registry, {
    io: 'input',
    uri: id => `#/components/schemas/${id}`,
    override: ({ jsonSchema }) => {
      // A pair of numbers is an array of two: more readers know that than prefixItems.
      const { prefixItems } = jsonSchema
      if (prefixItems !== undefined) {
        jsonSchema.items = prefixItems[0]!
        delete jsonSchema.prefixItems
      }
      // zod bounds whole numbers by what JavaScript counts exactly; that is no promise of ours.
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum
      if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum
    },
  })
  const plain = Object.entries(made.schemas).map(
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
