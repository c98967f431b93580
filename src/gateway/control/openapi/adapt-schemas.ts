/** Schemas of live recalibration: the types of `observe/insight/wire.ts`. */
import * as z from 'zod'
import type * as wire from '../../observe/insight/wire.ts'
import { count, milliseconds, schemaFor } from './typed-schema.ts'

const unixMs = () => z.number().min(0).describe('Unix time in milliseconds.')
const rank = () => z.number().min(0).max(1)
const judgedBy = z
  .enum(['reported', 'predicted'])
  .describe('Whether workers reported the decode counts of the requests, or their prompts predict them.')
const hash = () => z.string().regex(/^[\da-f]{64}$/)

const attempt = schemaFor<wire.AdaptAttempt>()(
  z.strictObject({
    atMs: unixMs(),
    seconds: z.number().min(0),
    verdict: z.enum(['swap', 'suggest', 'no_gain', 'failed']),
    problem: z.string().optional().describe('Why it failed. The members below are then absent.'),
    gain: z.number().optional().describe('Share of the time of a decode step that it should save.'),
    gainHalf: z.number().min(0).optional().describe('Half the width of the 95 % interval of the gain.'),
    judgedBy: judgedBy.optional(),
    fitted: count().optional().describe('Sampled requests that it was fitted on.'),
    heldOut: count().optional().describe('Sampled requests that it was judged on.'),
    moved: count().optional().describe('Requests in flight whose region moves to another worker.'),
    inflight: count().optional(),
  }),
).describe('A refit and its judgement.')

const swap = schemaFor<wire.AdaptSwap>()(
  z.strictObject({
    atMs: unixMs(),
    file: z
      .string()
      .describe('Path of its file. Without admin access (open dashboard) only the name of the file.'),
    sha256: hash(),
    parentSha256: hash().describe('The artifact that it replaced.'),
    state: z.enum(['in_force', 'past', 'undone', 'rolled_back']),
    sampleRequests: count(),
    heldOutRequests: count(),
    gain: z.number().describe('Predicted, as a share of the time of a decode step.'),
    gainHalf: z.number().min(0),
    judgedBy,
    moved: count().optional(),
    p99BeforeMs: milliseconds().optional().describe('p99 of TPOT before the swap.'),
    p99AfterMs: milliseconds().optional(),
  }),
).describe('An artifact that was refitted from live requests and put in force.')

export const adapt = schemaFor<wire.AdaptView>()(
  z.strictObject({
    mode: z.enum(['off', 'suggest', 'on']),
    state: z
      .enum(['off', 'idle', 'steady', 'drifting', 'refitting', 'swapping', 'watching', 'held'])
      .describe(
        'idle: nothing to adapt. steady: the artifact fits. drifting: waits for requests or for the next refit. watching: after a swap. held: after a swap that was undone or rolled back.',
      ),
    note: z.string().optional().describe('Why it is idle or held.'),
    problem: z.string().optional().describe('Why no swap can be made.'),
    drift: z
      .strictObject({
        meanRank: rank()
          .optional()
          .describe(
            'Mean rank of recent requests among the calibration requests, by the cosine to the nearest centroid: about 0.5 while the artifact fits.',
          ),
        sinceMs: unixMs().optional().describe('When the drift began. Absent without drift.'),
        history: z
          .array(
            schemaFor<wire.DriftPoint>()(
              z.strictObject({ fromMs: unixMs(), meanRank: rank(), requests: count() }),
            ),
          )
          .describe('The last hour, in slices of 15 seconds.'),
      })
      .optional(),
    sample: z
      .strictObject({
        requests: count(),
        capacity: count(),
        halfLifeMs: milliseconds(),
        bytes: count(),
        reported: count().describe('Requests whose workers reported decode counts.'),
        needed: count().describe('Requests since the change that a refit needs.'),
        usable: count().describe('Requests since the change that are in the sample.'),
      })
      .optional(),
    minGain: z.number().optional(),
    last: attempt.optional(),
    suggestion: z.boolean().describe('Whether /eldr/adapt/swap has something to swap to.'),
    swaps: z.array(swap).describe('Newest first.'),
  }),
).describe('State of live recalibration.')

export const adaptEvent = z.union([
  z.strictObject({ kind: z.literal('drift'), meanRank: rank(), sinceMs: unixMs() }),
  z.strictObject({ kind: z.literal('recovered'), meanRank: rank() }),
  z.strictObject({ kind: z.literal('judged'), attempt }),
  z.strictObject({ kind: z.enum(['swapped', 'undone', 'rolled_back']), swap }),
  z.strictObject({ kind: z.literal('kept'), swap, why: z.string() }),
  z.strictObject({ kind: z.literal('failed'), problem: z.string() }),
  z.strictObject({ kind: z.literal('skipped'), file: z.string(), problem: z.string() }),
])
