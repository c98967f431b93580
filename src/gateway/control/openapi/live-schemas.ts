/** Schemas of decisions, requests and dashboard data: the types of `observe/insight/wire.ts`. */
import * as z from 'zod'
import { REASONS } from '../../../policy/decode-policy.ts'
import { ROLES } from '../admin/worker-routes.ts'
import type * as wire from '../../observe/insight/wire.ts'
import { OUTCOMES } from '../../observe/request-observer.ts'
import type { RoutingChange } from '../../routing/routing-control.ts'
import { routingView } from './admin-schemas.ts'
import { count, milliseconds, schemaFor } from './typed-schema.ts'

const unixMs = () => z.number().min(0).describe('Unix time in milliseconds.')

export const welcome = schemaFor<wire.Welcome>()(
  z.strictObject({
    version: z.string(),
    access: z.enum(['none', 'read', 'change']).describe('What the client may do.'),
    tokenSet: z.boolean().describe('Whether the gateway has an admin token.'),
    startedMs: unixMs().optional(),
    policies: z.array(z.string()).optional(),
    prefillPolicies: z.array(z.string()).optional(),
  }),
).describe('What the client may do. All members but the first three need read access.')

export const decision = schemaFor<wire.LiveDecision>()(
  z.strictObject({
    request: z.string(),
    timeMs: unixMs(),
    policy: z.string(),
    worker: z.string().describe('The chosen decode worker.'),
    reason: z.enum(REASONS),
    band: count().optional().describe('Number of candidates in the locality band; policy band only.'),
    reject: z.string().optional().describe('Why the expert counts of the hand-off were not used.'),
    covered: z.number().min(0).max(1).optional().describe('Share of the prompt covered by expert counts.'),
    candidates: z.array(
      z.strictObject({
        id: z.string(),
        inflight: count(),
        similarity: z.number().nullish().describe('Null if the worker has no centroid.'),
      }),
    ),
    at: z
      .tuple([z.number(), z.number()])
      .optional()
      .describe('Position of the signature in the plane of /eldr/plane.'),
  }),
).describe('A routing decision, with the state of the candidates at that time.')

export const decisions = z.strictObject({ decisions: z.array(decision).describe('Newest first.') })

const leg = schemaFor<wire.LegView>()(
  z.strictObject({
    leg: z.enum(ROLES),
    worker: z.string(),
    attempt: count(),
    part: z.string().optional().describe('Id of the part, if the request was split.'),
    fromMs: milliseconds(),
    firstMs: milliseconds().optional(),
    toMs: milliseconds().optional(),
    tokens: count().optional(),
    outcome: z.string().optional(),
    why: z.string().optional(),
  }),
)

const story = schemaFor<wire.StoryView>()(
  z.strictObject({
    request: z.string(),
    route: z.string(),
    startedMs: unixMs(),
    promptTokens: count().optional(),
    stream: z.boolean().optional(),
    maxTokens: count().optional(),
    legs: z.array(leg),
    resumes: count().optional(),
    pauseMs: milliseconds().optional(),
    notResumed: z.string().optional(),
    firstMs: milliseconds().optional(),
    endMs: milliseconds().optional(),
    outcome: z.enum(OUTCOMES).optional(),
    status: z.int().optional(),
  }),
).describe('History of a request. Times are in milliseconds since its arrival.')

export const requestView = schemaFor<wire.RequestView>()(
  z.strictObject({
    request: z.string(),
    live: z
      .array(z.strictObject({ path: z.string(), seconds: z.number().min(0) }))
      .describe('Running requests with this id.'),
    decodeWorkers: z.array(z.string()),
    decisions: z.array(decision),
    story: story.optional(),
  }),
)

export const experts = schemaFor<wire.ExpertsView>()(
  z.strictObject({
    layers: count(),
    experts: count(),
    topK: count(),
    workers: z.array(
      schemaFor<wire.WorkerExperts>()(
        z.strictObject({
          id: z.string(),
          answered: z.boolean(),
          batch: z.number().optional().describe('Number of sequences in the last decode step.'),
          active: z
            .array(z.number())
            .optional()
            .describe('Number of distinct experts in the last decode step, per layer.'),
          union: z
            .string()
            .optional()
            .describe('Active experts: bits [layer][expert], lowest bit first, base64.'),
          expected: z
            .string()
            .optional()
            .describe('Probabilities of experts: bytes [layer][expert], in 1/255, base64.'),
        }),
      ),
    ),
  }),
).describe('Active experts of each decode worker.')

const point = () => z.tuple([z.number(), z.number()])
export const plane = z.strictObject({
  plane: schemaFor<wire.PlaneView>()(
    z.strictObject({
      sha256: z.string(),
      domains: z.array(z.string()),
      points: z
        .array(z.tuple([z.number(), z.number(), z.number(), z.number()]))
        .describe('x, y, cluster, domain (−1: unknown).'),
      centroids: z.array(point()),
      explained: point().describe('Share of variance explained by each axis.'),
    }),
  )
    .nullable()
    .describe('Null without an artifact.'),
})

export const routingChange = schemaFor<RoutingChange>()(
  z.strictObject({
    cause: z.enum(['policy', 'artifact', 'refit', 'refit_refused', 'workers', 'model']),
    routing: routingView,
  }),
)
export const workerChange = z.strictObject({ change: z.string(), worker: z.string(), leg: z.enum(ROLES) })
export const lost = z.strictObject({
  events: z.int().min(1).describe('Number of events that this reader missed because it was too slow.'),
})
