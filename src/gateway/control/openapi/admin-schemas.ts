/** Bodies and answers of the admin API that change something, and what the settings look like. */
import * as z from 'zod'
import type { WorkerSource } from '../../../cluster/worker.ts'
import { POLICIES } from '../../../policy/decode-policy.ts'
import { PREFILL_POLICIES } from '../../../policy/prefill-policy.ts'
import { MAX_LEVEL_MS } from '../admin/log-routes.ts'
import { MAX_CLUSTERS } from '../admin/routing-routes.ts'
import { MAX_TAU } from '../../config/schema/schema-parts.ts'
import { ID } from '../admin/routes.ts'
import { MAX_WORKERS, ROLES } from '../admin/worker-routes.ts'
import { MAX_RANKS, ORIGIN_EXAMPLE } from '../../config/origin.ts'
import { spellings } from '../../config/schema/schema-parts.ts'
import { LOG_LEVELS } from '../../config/settings.ts'
import type { LogLevelView } from '../../observe/log/log-level.ts'
import type { SourceStatus } from '../discovery/discovery.ts'
import type { ReplicaStatus } from '../../observe/replica-status.ts'
import type { RoutingView } from '../../routing/routing-control.ts'
import { count, schemaFor } from './typed-schema.ts'

export const WORKER_STATES = ['ready', 'draining', 'unhealthy', 'open', 'unknown', 'leaving', 'gone'] as const
export const WORKER_SOURCES = [
  'config',
  'admin',
  'file',
  'dns',
  'kubernetes',
] as const satisfies readonly WorkerSource[]
export const BREAKER_STATES = ['closed', 'open', 'half_open'] as const

export const worker = z
  .strictObject({
    id: z.string().regex(ID),
    role: z.enum(ROLES),
    url: z.string().meta({ format: 'uri' }),
    dpRank: count()
      .optional()
      .describe('Which of the data-parallel engines behind the URL it is, where it is one of several.'),
    state: z
      .enum(WORKER_STATES)
      .describe('leaving: removed, with requests that still run. gone: removed with this request.'),
    breaker: z.enum(BREAKER_STATES),
    inflight: count().describe('Requests of this gateway on it.'),
    inflightElsewhere: count()
      .optional()
      .describe('Requests of other replicas on it, as they last said, where there are replicas.'),
    tokens: count().describe('Prompt tokens of those.'),
    index: count(),
    cluster: count().optional().describe('Its cluster of the artifact, where it has one.'),
    source: z.enum(WORKER_SOURCES).optional().describe('Who told of it.'),
  })
  .describe('A worker as it is now.')

const looked = {
  source: z.enum(['file', 'dns', 'kubernetes']),
  up: z.boolean().describe('Whether the last look succeeded; else keeping the workers found before.'),
  workers: count(),
  lastSuccess: z.string().meta({ format: 'date-time' }).optional(),
  reason: z.enum(['unreadable', 'broken', 'empty', 'unreachable', 'refused', 'failed']).optional(),
}
const sourceStatus = schemaFor<SourceStatus>()(
  z.strictObject({
    ...looked,
    problem: z.string().optional(),
    notes: z.array(z.string()).optional().describe('Workers that were left out, and why.'),
  }),
)

export const workers = z.strictObject({
  workers: z.array(worker),
  discovery: z
    .array(sourceStatus)
    .optional()
    .describe('Sources that workers are discovered by, where there are any.'),
})

export const readiness = z.strictObject({
  status: z.enum(['ready', 'waiting for workers', 'draining']),
  prefill: count().describe('Prefill workers that take requests.'),
  decode: count().describe('Decode workers that take requests.'),
  discovery: z
    .array(z.strictObject(looked))
    .optional()
    .describe('Sources that workers are discovered by, where there are any.'),
  replicas: schemaFor<ReplicaStatus>()(
    z.strictObject({
      store: z
        .enum(['up', 'down'])
        .describe('Down: each gateway goes by its own requests; it is no reason not to be ready.'),
      reason: z.string().optional().describe('Why it is down: refused, silent, unreachable or starting.'),
      replicas: count().describe('Gateways that know of each other, this one included.'),
      viewAgeSeconds: z.number().min(0).describe('Since the one was heard that has been silent longest.'),
      version: count().describe('Of the changes that they share.'),
      waiting: count().describe('Changes made here that the others do not know of yet.'),
      behind: z.array(z.string()).describe('What others changed and could not be done here.'),
    }),
  )
    .optional()
    .describe('Other gateways before the same workers, where replicas.url is set.'),
})

const named = {
  url: z
    .string()
    .regex(/^[hH][tT][tT][pP][sS]?:\/\//)
    .meta({ format: 'uri' })
    .describe(
      `Origin of the worker, such as ${ORIGIN_EXAMPLE}: no path, no user, no password. With @RANK behind it, one data-parallel rank.`,
    ),
  dpRank: z
    .int()
    .min(0)
    .max(MAX_RANKS - 1)
    .optional()
    .describe('Data-parallel rank that its requests are sent to.'),
  id: z
    .string()
    .regex(ID)
    .optional()
    .describe('Unique over all workers; host and port unless told, with @RANK behind them for a rank.'),
}
export const newWorker = z
  .union([
    z.strictObject({ role: z.literal('prefill'), ...named }),
    z.strictObject({
      role: z.literal('decode'),
      ...named,
      cluster: z
        .int()
        .min(0)
        .max(MAX_WORKERS - 1)
        .optional()
        .describe('Its cluster of the artifact; a free one unless told.'),
    }),
  ])
  .describe('A worker to add.')

/** Routes that have nothing to be told take an empty object, or no body at all. */
export const nothing = z.strictObject({}).describe('Nothing: the body may be left out.')

export const policyChange = z
  .strictObject({
    policy: spellings(POLICIES).optional().describe('Decode policy.'),
    tau: z.number().min(0).max(MAX_TAU).optional().describe('Locality band of eldr.'),
    prefillPolicy: spellings(PREFILL_POLICIES).optional().describe('Prefill policy.'),
  })
  .meta({ minProperties: 1 })
  .describe('What is to change; the rest stays as it is.')

export const artifactPath = z
  .strictObject({
    path: z.string().min(1).meta({ pattern: '^[^\\x00]+$' }).describe('Of a file on the gateway’s machine.'),
  })
  .describe('An artifact by its path.')

export const refitOrder = z
  .strictObject({
    workers: z
      .int()
      .min(1)
      .max(MAX_CLUSTERS)
      .optional()
      .describe('Clusters; as many as decode workers unless told.'),
  })
  .describe('How many clusters to fit.')

export const routingView = schemaFor<RoutingView>()(
  z.strictObject({
    policy: z.enum(POLICIES),
    tau: z.number().min(0).max(MAX_TAU),
    prefillPolicy: z.enum(PREFILL_POLICIES),
    artifact: z
      .strictObject({
        file: z.string(),
        sha256: z.string().regex(/^[\da-f]{64}$/),
        model: z.string(),
        clusters: count(),
      })
      .optional()
      .describe('File and hash stay those of what was read after a re-fit.'),
    decodeWorkers: count(),
    note: z.string().optional().describe('Why the clusters do not fit the workers, and why they stay so.'),
  }),
).describe('How requests are routed now.')

export const logLevelChange = z
  .strictObject({
    level: z.enum(LOG_LEVELS),
    forMs: z
      .int()
      .min(1)
      .max(MAX_LEVEL_MS)
      .optional()
      .describe('After which it is as configured again; for good unless told.'),
  })
  .describe('How much is to be logged.')

export const logLevelView = schemaFor<LogLevelView>()(
  z.strictObject({
    level: z.enum(LOG_LEVELS),
    configured: z.enum(LOG_LEVELS),
    leftMs: count().optional().describe('Until it is as configured again, where that comes by itself.'),
  }),
).describe('How much is logged.')
