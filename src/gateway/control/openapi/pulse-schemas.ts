/** Schemas of the two events of /eldr/pulse. */
import * as z from 'zod'
import { ROLES } from '../admin/worker-routes.ts'
import type * as wire from '../../observe/insight/wire.ts'
import { routingView, WORKER_STATES, BREAKER_STATES } from './admin-schemas.ts'
import { count, milliseconds, schemaFor } from './typed-schema.ts'
import { decision } from './live-schemas.ts'

const spread = schemaFor<wire.Spread>()(
  z.strictObject({ count: count(), mean: z.number(), p50: z.number(), p95: z.number() }),
)

const pacePoint = schemaFor<wire.PacePoint>()(
  z.strictObject({
    fromMs: milliseconds(),
    policy: z.string(),
    ttft: spread.optional(),
    tpot: spread.optional(),
  }),
)

const clusterEvent = schemaFor<wire.ClusterEvent>()(
  z.strictObject({
    number: count(),
    atMs: milliseconds(),
    kind: z.enum(['worker', 'routing', 'gateway']),
    about: z.string(),
    change: z.string(),
  }),
)

const liveWorker = schemaFor<wire.LiveWorker>()(
  z.strictObject({
    id: z.string(),
    role: z.enum(ROLES),
    dpRank: count().optional(),
    state: z.enum(WORKER_STATES),
    breaker: z.enum(BREAKER_STATES),
    inflight: count(),
    tokens: count(),
    cluster: count().optional(),
    recentMs: milliseconds().optional(),
    recentCount: count(),
    stepCost: z
      .strictObject({
        baseMs: milliseconds(),
        perExpertMs: milliseconds(),
        perRequestMs: milliseconds(),
        streams: count(),
      })
      .optional(),
  }),
)

const health = schemaFor<wire.FitHealth>()(
  z.strictObject({
    seconds: z.number(),
    decisions: count(),
    withoutSignature: count(),
    reasons: z.record(z.string(), count()),
    rejects: z.record(z.string(), count()),
    coverage: z.number().min(0).max(1).optional(),
    covered: count(),
    compared: count(),
    quantiles: z.array(
      z.strictObject({ q: z.number(), calibration: z.number().optional(), live: z.number().optional() }),
    ),
  }),
)

export const pulse = schemaFor<wire.Pulse>()(
  z.strictObject({
    atMs: milliseconds(),
    routing: routingView,
    workers: z.array(liveWorker),
    running: count(),
    queued: count(),
    seen: count().describe('Number of decisions since the last pulse.'),
    sinceMs: milliseconds(),
    sample: z.array(decision).describe('A random sample of them.'),
    pace: z.array(pacePoint),
    health,
    happenings: z.array(clusterEvent).describe('New events.'),
    watchers: count(),
  }),
).describe('Changes since the last pulse.')

export const hello = schemaFor<wire.Hello>()(
  z.strictObject({
    pulseMs: milliseconds(),
    sampleSize: count(),
    sliceMs: milliseconds(),
    pace: z.array(pacePoint),
    happenings: z.array(clusterEvent),
    decisions: z.array(decision),
    pulse,
  }),
).describe('First event of a stream: the current state and recent history.')
