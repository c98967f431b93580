/** The kinds of frames, and what those have in them that both sides write or read. */
import type { Role } from '../../../cluster/worker.ts'
import { countsIn } from '../../engines/handoff-counts.ts'
import type { HandoffExperts } from '../../routing/read-experts.ts'
import type { Frame, FrameWriter } from './frames.ts'

/** From a relay to the owner. Questions have a number of the relay's, and their answers the same; a ticket has that of its question. */
export const ASK = {
  /** The first of a connection: which relay it is. */
  hello: 1,
  /** A ticket that another owner gave, and how many requests it has let in. */
  adopt: 2,
  running: 3,
  /** That was all of it: questions may come from now on. */
  declared: 4,
  /** To be let in. Answered by `admitted` or `refused`. */
  enter: 10,
  cancel: 11,
  leave: 12,
  requestCame: 13,
  /** Answered by `yes`. */
  any: 14,
  mayRetry: 15,
  /** Answered by `dispatch`, or `none`. */
  prefill: 16,
  release: 17,
  /** Answered by `place`, or `none`. */
  decode: 18,
  /** Of a ticket. */
  ended: 19,
  passiveFailure: 20,
  sawEngine: 21,
  pace: 22,
  /** To what the owner asked; JSON. */
  report: 23,
} as const

/** From the owner to a relay. */
export const TELL = {
  /** A worker by the number that answers have for it, before the first of them; and that it is gone. */
  worker: 1,
  forgotten: 2,
  /** Whether there is room for requests, when that changes. */
  room: 3,
  admitted: 10,
  refused: 11,
  yes: 12,
  dispatch: 13,
  place: 14,
  none: 15,
  /** So many of the requests that wait for a worker are to be tried elsewhere. */
  lost: 16,
  logLevel: 17,
  /** Answered by `report`. */
  metrics: 18,
  request: 19,
} as const

export const ENDS = ['succeeded', 'failed', 'ignored'] as const
export type TicketEnd = (typeof ENDS)[number]

export const PACES = ['firstByte', 'stream', 'onWorker'] as const

/** What `room` and `admitted` say, as bits. */
export const ROOM = { full: 1, mustWait: 2, prefill: 4, decode: 8 } as const

export const roleByte = (role: Role): number => (role === 'decode' ? 1 : 0)
export const roleOf = (byte: number): Role => (byte === 1 ? 'decode' : 'prefill')

/** A hand-off as a relay has it: counts as they came. */
export interface RawHandoff {
  readonly counts?: Buffer
  readonly routedExperts?: string
  readonly promptTokens?: number
}

export function rawHandoff({ counts, routedExperts, promptTokens }: HandoffExperts): RawHandoff {
  return {
    ...(Buffer.isBuffer(counts) && { counts }),
    ...(routedExperts !== undefined && { routedExperts }),
    ...(promptTokens !== undefined && { promptTokens }),
  }
}

const HAS = { handoff: 1, counts: 2, routedExperts: 4, promptTokens: 8 } as const

export function writeHandoff(to: FrameWriter, handoff: RawHandoff | undefined): void {
  const { counts, routedExperts, promptTokens } = handoff ?? {}
  to.byte(
    (handoff === undefined ? 0 : HAS.handoff) |
      (counts === undefined ? 0 : HAS.counts) |
      (routedExperts === undefined ? 0 : HAS.routedExperts) |
      (promptTokens === undefined ? 0 : HAS.promptTokens),
  )
  if (counts !== undefined) to.bytes(counts)
  if (routedExperts !== undefined) to.text(routedExperts)
  if (promptTokens !== undefined) to.number(promptTokens)
}

export function readHandoff(frame: Frame): HandoffExperts | undefined {
  const has = frame.byte()
  if ((has & HAS.handoff) === 0) return undefined
  return {
    counts: has & HAS.counts ? countsIn(frame.bytes()) : undefined,
    routedExperts: has & HAS.routedExperts ? frame.text() : undefined,
    promptTokens: has & HAS.promptTokens ? frame.number() : undefined,
  }
}

/** A number that may be missing. */
export function writeMaybe(to: FrameWriter, value: number | undefined): void {
  to.number(value ?? NaN)
}

export function readMaybe(frame: Frame): number | undefined {
  const value = frame.number()
  return Number.isNaN(value) ? undefined : value
}
