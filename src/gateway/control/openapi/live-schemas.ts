/** What the gateway tells of its requests and its workers: the types of `dashboard/wire.ts` as schemas. */
import * as z from 'zod'
import { REASONS } from '../../../policy/decode-policy.ts'
import { ROLES } from '../admin/worker-routes.ts'
import type * as wire from '../../observe/insight/wire.ts'
import { OUTCOMES } from '../../observe/request-observer.ts'
import type { RoutingChange } from '../../routing/routing-control.ts'
import { routingView } from './admin-schemas.ts'
import { count, milliseconds, schemaFor } from './typed-schema.ts'

const since1970 = () => z.number().min(0).describe('Milliseconds since 1970.')

export const welcome = schemaFor<wire.Welcome>()(
  z.strictObject({
    version: z.string(),
    access: z.enum(['none', 'read', 'change']).describe('What this caller may do.'),
    tokenSet: z.boolean().describe('Whether the gateway has an admin token.'),
    startedMs: since1970().optional(),
    policies: z.array(z.string()).optional(),
    prefillPolicies: z.array(z.string()).optional(),
  }),
).describe('What the caller may do. All but the first three is for those who may read.')

export const decision = schemaFor<wire.LiveDecision>()(
  z.strictObject({
    request: z.string(),
    timeMs: since1970(),
    policy: z.string(),
    worker: z.string().describe('Which was picked.'),
    reason: z.enum(REASONS),
    band: count().optional().describe('Candidates in the locality band.'),
    reject: z.string().optional().describe('Why the hand-off’s counts were not used.'),
    covered: z.number().min(0).max(1).optional().describe('Share of the prompt whose experts are known.'),
    candidates: z.array(
      z.strictObject({
        id: z.string(),
        inflight: count(),
        similarity: z.number().nullish().describe('Null: it has no centroid.'),
      }),
    ),
    at: z.tuple([z.number(), z.number()]).optional().describe('Where its signature lies in the plane.'),
  }),
).describe('One decision, with the candidates as they were.')

export const decisions = z.strictObject({ decisions: z.array(decision).describe('The last first.') })

const leg = schemaFor<wire.LegView>()(
  z.strictObject({
    leg: z.enum(ROLES),
    worker: z.string(),
    attempt: count(),
    part: z.string().optional().describe('Of a request that was split: the part’s id.'),
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
    startedMs: since1970(),
    promptTokens: count().optional(),
    stream: z.boolean().optional(),
    maxTokens: count().optional(),
    legs: z.array(leg),
    firstMs: milliseconds().optional(),
    endMs: milliseconds().optional(),
    outcome: z.enum(OUTCOMES).optional(),
    status: z.int().optional(),
  }),
).describe('What became of a request; times are since it came.')

export const requestView = schemaFor<wire.RequestView>()(
  z.strictObject({
    request: z.string(),
    live: z
      .array(z.strictObject({ path: z.string(), seconds: z.number().min(0) }))
      .describe('Under way under this id.'),
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
          batch: z.number().optional().describe('Sequences of the last decode step.'),
          active: z
            .array(z.number())
            .optional()
            .describe('Distinct experts of the last decode step in each layer.'),
          union: z
            .string()
            .optional()
            .describe('Base64 of bits [layer][expert], the lowest bit of a byte first.'),
          expected: z.string().optional().describe('Base64 of bytes [layer][expert]: chance in 255ths.'),
        }),
      ),
    ),
  }),
).describe('The experts of each decode worker now.')

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
      explained: point().describe('Share of the variance of either axis.'),
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
  events: z.int().min(1).describe('How many this reader missed: it was too slow.'),
})
