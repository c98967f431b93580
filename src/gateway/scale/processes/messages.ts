/** Kinds of frames, and the values that both sides read and write. */
import type { EndedStream } from '../../../math/switchback.ts'
import type { Role } from '../../../cluster/worker.ts'
import type { Turn } from '../../../policy/conversations.ts'
import type { HandoffExperts } from '../../routing/read-experts.ts'
import type { Frame, FrameWriter } from './frames.ts'

/** Version of the frames: an owner takes relays of the same one only. Raise it with every change to them. */
export const PROTOCOL = 1

/**
 * From a relay to the owner. The relay numbers its requests; the response and the ticket have the number of
 * the request.
 */
export const ASK = {
  /** First frame of a connection: number of the relay. */
  hello: 1,
  /** A ticket that another owner issued. */
  adopt: 2,
  /** Number of admitted requests. */
  running: 3,
  /** End of the declaration: requests follow. */
  declared: 4,
  /** Asks for admission. Answered with `admitted` or `refused`. */
  enter: 10,
  cancel: 11,
  leave: 12,
  requestCame: 13,
  /** Answered with `yes`. */
  any: 14,
  mayRetry: 15,
  mayResume: 26,
  /** Answered with `dispatch` or `none`. */
  prefill: 16,
  release: 17,
  /** Answered with `place` or `none`. */
  decode: 18,
  /** The same, on the worker that holds the KV cache of a conversation. */
  holder: 25,
  /** End of a ticket, and what it says about its worker. */
  ended: 19,
  passiveFailure: 20,
  sawEngine: 21,
  pace: 22,
  /** Response to `metrics` or `request`; JSON. */
  report: 23,
  /** A response that a decode worker has completed, with its times. */
  streamEnded: 24,
} as const

/** From the owner to a relay. */
export const TELL = {
  /** Assigns a number to a worker, before the first response that uses it; and removes it. */
  worker: 1,
  forgotten: 2,
  /** Whether there is room for requests; sent when that changes. */
  room: 3,
  admitted: 10,
  refused: 11,
  yes: 12,
  dispatch: 13,
  place: 14,
  none: 15,
  /** Retry up to this many of the requests that wait for a worker elsewhere. */
  lost: 16,
  logLevel: 17,
  /** Answered with `report`. */
  metrics: 18,
  request: 19,
} as const

export const ENDS = ['succeeded', 'failed', 'ignored'] as const
export type TicketEnd = (typeof ENDS)[number]

export const PACES = ['firstByte', 'stream', 'onWorker'] as const

/** Bits of `room` and `admitted`. */
export const ROOM = { full: 1, mustWait: 2, prefill: 4, decode: 8 } as const

export const roleByte = (role: Role): number => (role === 'decode' ? 1 : 0)
export const roleOf = (byte: number): Role => (byte === 1 ? 'decode' : 'prefill')

const NO_EXPERTS: HandoffExperts = { counts: undefined, routedExperts: undefined, promptTokens: undefined }
const HAS = { handoff: 1, counts: 2, routedExperts: 4, promptTokens: 8 } as const

export function writeHandoff(to: FrameWriter, handoff: HandoffExperts | undefined): void {
  const { counts, routedExperts, promptTokens } = handoff ?? NO_EXPERTS
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
    counts: has & HAS.counts ? frame.bytes() : undefined,
    routedExperts: has & HAS.routedExperts ? frame.text() : undefined,
    promptTokens: has & HAS.promptTokens ? frame.number() : undefined,
  }
}

export function readStream(frame: Frame): EndedStream {
  return { ageMs: frame.number(), ttftMs: readMaybe(frame), tpotMs: readMaybe(frame), tokens: frame.number() }
}

export function writeStream(to: FrameWriter, { ageMs, ttftMs, tpotMs, tokens }: EndedStream): void {
  to.number(ageMs)
  writeMaybe(to, ttftMs)
  writeMaybe(to, tpotMs)
  to.number(tokens)
}

export function writeTurn(to: FrameWriter, turn: Turn | undefined): void {
  to.number(turn?.keys.length ?? 0)
  for (const key of turn?.keys ?? []) to.number(key)
  if (turn !== undefined) to.number(turn.tokens)
}

export function readTurn(frame: Frame): Turn | undefined {
  const keys = Array.from({ length: frame.number() }, () => frame.number())
  return keys.length === 0 ? undefined : { keys, tokens: frame.number() }
}

/** An optional number: NaN stands for undefined. */
export function writeMaybe(to: FrameWriter, value: number | undefined): void {
  to.number(value ?? NaN)
}

export function readMaybe(frame: Frame): number | undefined {
  const value = frame.number()
  return Number.isNaN(value) ? undefined : value
}
