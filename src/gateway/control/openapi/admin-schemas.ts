/** Request and response schemas of the admin API. */
import * as z from 'zod'
import type { WorkerSource } from '../../../cluster/worker.ts'
import { POLICIES } from '../../../policy/decode-policy.ts'
import { PREFILL_POLICIES } from '../../../policy/prefill-policy.ts'
import type { ExperimentView, FinishedSlot } from '../experiment/experiments.ts'
import { LEASE_MS, MAX_SLOT, MAX_WASHOUT_MS } from '../admin/experiment-routes.ts'
import { MAX_LEVEL_MS } from '../admin/log-routes.ts'
import { MAX_CLUSTERS } from '../admin/routing-routes.ts'
import { MAX_TAU } from '../../config/schema/schema-parts.ts'
import { ID } from '../admin/routes.ts'
import { MAX_WORKERS, ROLES } from '../admin/worker-routes.ts'
import { MAX_RANKS, ORIGIN_EXAMPLE } from '../../config/origin.ts'
import { spellings } from '../../config/schema/schema-parts.ts'
import { LOG_LEVELS } from '../../config/settings.ts'
import type { LogLevelView } from '../../observe/log/log-level.ts'
import type { Replaced } from '../admin/replace-routes.ts'
import type { SourceStatus } from '../discovery/discovery.ts'
import type { ReplicaStatus } from '../../observe/replica-status.ts'
import type { ShadowRow, ShadowView } from '../../observe/insight/wire.ts'
import type { RoutingView } from '../../routing/routing-control.ts'
import { count, milliseconds, schemaFor } from './typed-schema.ts'

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
    dpRank: count().optional().describe('Data-parallel rank, if the server has several.'),
    state: z
      .enum(WORKER_STATES)
      .describe('leaving: removed, but requests are still running. gone: removed by this request.'),
    breaker: z.enum(BREAKER_STATES),
    inflight: count().describe('In-flight requests of this gateway.'),
    inflightElsewhere: count()
      .optional()
      .describe('In-flight requests of other replicas, as last reported. Only with replicas.'),
    tokens: count().describe('Prompt tokens of the in-flight requests of this gateway.'),
    index: count(),
    cluster: count().optional().describe('Cluster of the artifact, if it has one.'),
    source: z.enum(WORKER_SOURCES).optional().describe('Where the worker comes from.'),
  })
  .describe('A worker and its current state.')

const sourceSummary = {
  source: z.enum(['file', 'dns', 'kubernetes']),
  up: z.boolean().describe('Whether the last lookup succeeded. If not, the workers found before are kept.'),
  workers: count(),
  lastSuccess: z.string().meta({ format: 'date-time' }).optional(),
  reason: z.enum(['unreadable', 'broken', 'empty', 'unreachable', 'refused', 'failed']).optional(),
}
const sourceStatus = schemaFor<SourceStatus>()(
  z.strictObject({
    ...sourceSummary,
    problem: z.string().optional(),
    notes: z.array(z.string()).optional().describe('Workers that were skipped, and why.'),
  }),
)

export const workers = z.strictObject({
  workers: z.array(worker),
  discovery: z.array(sourceStatus).optional().describe('Discovery sources, if any are configured.'),
})

export const readiness = z.strictObject({
  status: z.enum(['ready', 'waiting for workers', 'draining']),
  prefill: count().describe('Number of available prefill workers.'),
  decode: count().describe('Number of available decode workers.'),
  discovery: z
    .array(z.strictObject(sourceSummary))
    .optional()
    .describe('Discovery sources, if any are configured.'),
  replicas: schemaFor<ReplicaStatus>()(
    z.strictObject({
      store: z
        .enum(['up', 'down'])
        .describe('down: each gateway knows only its own requests. It does not affect readiness.'),
      reason: z
        .string()
        .optional()
        .describe('Why the store is down: refused, silent, unreachable or starting.'),
      replicas: count().describe('Number of connected gateways, including this one.'),
      viewAgeSeconds: z.number().min(0).describe('Age of the oldest state received from another replica.'),
      version: count().describe('Version of the shared changes.'),
      waiting: count().describe('Changes made here that are not published yet.'),
      behind: z.array(z.string()).describe('Changes of other replicas that could not be applied here.'),
    }),
  )
    .optional()
    .describe('State of the gateway replicas. Only if replicas.url is set.'),
})

const named = {
  url: z
    .string()
    .regex(/^[hH][tT][tT][pP][sS]?:\/\//)
    .meta({ format: 'uri' })
    .describe(
      `Origin of the worker, such as ${ORIGIN_EXAMPLE}, without path, user or password. Append @RANK for one data-parallel rank.`,
    ),
  dpRank: z
    .int()
    .min(0)
    .max(MAX_RANKS - 1)
    .optional()
    .describe('Data-parallel rank that gets the requests.'),
  id: z
    .string()
    .regex(ID)
    .optional()
    .describe('Unique worker id. Default: host and port, followed by @RANK for a rank.'),
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
        .describe('Cluster of the artifact. Default: a free one.'),
    }),
  ])
  .describe('A worker to add.')

/** For routes without parameters: an empty object, or no body. */
export const replaced = schemaFor<Replaced>()(
  z.strictObject({ pid: count().describe('Process id.'), version: z.string() }),
).describe('The process that serves from now on.')

export const nothing = z.strictObject({}).describe('Empty. The body may be omitted.')

export const policyChange = z
  .strictObject({
    policy: spellings(POLICIES).optional().describe('Decode policy.'),
    tau: z
      .number()
      .min(0)
      .max(MAX_TAU)
      .optional()
      .describe(
        'Weight of load against similarity, for eldr and band. The bound of eldr was tested at 0.1; smaller values give it up, and below 0.05 the gateway logs a warning.',
      ),
    prefillPolicy: spellings(PREFILL_POLICIES).optional().describe('Prefill policy.'),
  })
  .meta({ minProperties: 1 })
  .describe('The settings to change. Others keep their values.')

export const artifactPath = z
  .strictObject({
    path: z
      .string()
      .min(1)
      .meta({ pattern: '^[^\\x00]+$' })
      .describe('Path of a file on the gateway’s machine.'),
  })
  .describe('Path of an artifact.')

export const refitOrder = z
  .strictObject({
    workers: z
      .int()
      .min(1)
      .max(MAX_CLUSTERS)
      .optional()
      .describe('Number of clusters. Default: the number of decode workers.'),
  })
  .describe('Number of clusters to fit.')

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
      .describe('The loaded artifact. A refit does not change file and hash.'),
    decodeWorkers: count(),
    note: z
      .string()
      .optional()
      .describe('Why the number of clusters differs from the number of workers, and why there was no refit.'),
  }),
).describe('Current routing configuration.')

const bothMeans = () => z.strictObject({ shadow: z.number().min(0), inForce: z.number().min(0) }).optional()

export const shadowView = schemaFor<ShadowView>()(
  z.strictObject({
    inForce: z.string().describe('The policy in force.'),
    sinceMs: count().describe('Unix time of the last change of routing, which starts the counts again.'),
    requests: count().describe(
      'Decisions of the policy in force since then. Shadow policies make fewer if their time, 2 % of a core, is spent.',
    ),
    shadows: z.array(
      schemaFor<ShadowRow>()(
        z.strictObject({
          policy: z.enum(POLICIES),
          state: z
            .enum(['deciding', 'waiting', 'failed'])
            .describe(
              'waiting: it lacks something. failed: an error of the policy; it decides again after the next change of routing.',
            ),
          why: z.string().optional(),
          decisions: count(),
          agreed: count().describe('Decisions for the same worker as the policy in force.'),
          judged: count().describe('Decisions of requests whose experts could be predicted.'),
          experts: bothMeans().describe(
            'Expected distinct experts per layer of a step with the request: mean over the judged decisions. An emptier worker has fewer, so this alone does not say which policy is better.',
          ),
          costUs: bothMeans().describe(
            'Expected cost of a step of the request, in microseconds of the cost of union: its time, and what the request adds to it for each of the other requests there. Mean over the judged decisions.',
          ),
        }),
      ),
    ),
  }),
).describe(
  'Decisions of the shadow policies, each judged by what it adds to the batches that the policy in force has made. A policy that gathers similar requests (eldr, band) finds none gathered there and may look worse than it is; an experiment decides.',
)

const percentiles = () => z.strictObject({ p50: milliseconds().nullable(), p99: milliseconds().nullable() })

const finishedSlot = schemaFor<FinishedSlot>()(
  z.strictObject({
    slot: count(),
    policy: z.enum(POLICIES),
    seconds: z.number().min(0).describe('Length of the measured part.'),
    streams: count().describe('Streams in the percentiles.'),
    ttftMs: percentiles().describe('Time to the first token. null without streams.'),
    tpotMs: percentiles().describe('Mean time between the tokens of a stream. null without streams.'),
    requestsPerSecond: z.number().min(0),
    outputTokensPerSecond: z.number().min(0),
  }),
).describe(
  'Measurements of a slot after its washout. Percentiles are of streams that began in the slot and ended in it.',
)

export const experimentView = schemaFor<ExperimentView>()(
  z.strictObject({
    running: z.boolean(),
    id: z.string().optional(),
    policies: z.array(z.enum(POLICIES)).optional(),
    slot: count().optional().describe('Number of the current slot, from 1. 0: before the first.'),
    policy: z.enum(POLICIES).describe('The policy in force.'),
    restores: z.enum(POLICIES).optional().describe('The policy that is restored at the end.'),
    leaseMs: count().optional(),
    finished: finishedSlot.optional().describe('The slot that this request has ended.'),
  }),
).describe('The running experiment, if any.')

export const newExperiment = z
  .strictObject({
    policies: z.array(spellings(POLICIES)).min(1).describe('Policies that the slots may have.'),
    leaseMs: z
      .int()
      .min(LEASE_MS.min)
      .max(LEASE_MS.max)
      .default(LEASE_MS.default)
      .describe('The policy is restored if the client does not renew the experiment for this long.'),
  })
  .describe('An experiment to start.')

export const experimentSlot = z
  .union([
    z.strictObject({}),
    z.strictObject({
      policy: spellings(POLICIES).describe('Policy of the next slot.'),
      tau: z.number().min(0).max(MAX_TAU).optional().describe('τ of the slot. Default: as before.'),
      washoutMs: z.int().min(0).max(MAX_WASHOUT_MS).optional().describe('Part of the slot not measured.'),
      slot: z
        .int()
        .min(1)
        .max(MAX_SLOT)
        .optional()
        .describe('Number of the slot to start. A repeated request with the same number has no effect.'),
    }),
  ])
  .describe('The next slot. Empty: renew the lease only.')

export const logLevelChange = z
  .strictObject({
    level: z.enum(LOG_LEVELS),
    forMs: z
      .int()
      .min(1)
      .max(MAX_LEVEL_MS)
      .optional()
      .describe('How long the change lasts. Default: permanent.'),
  })
  .describe('The new log level.')

export const logLevelView = schemaFor<LogLevelView>()(
  z.strictObject({
    level: z.enum(LOG_LEVELS),
    configured: z.enum(LOG_LEVELS),
    leftMs: count()
      .optional()
      .describe('Time until the configured level applies again, after a temporary change.'),
  }),
).describe('The current log level.')
