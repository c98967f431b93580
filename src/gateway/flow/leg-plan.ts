/** What a leg is told, and how it says that it ended. */
import type { Sink } from './sink.ts'
import type { StopSignal, UpstreamFailure } from '../upstream/upstreams.ts'

export interface LegLimits {
  /** To the first event of a stream, or to the end of an answer that is not streamed. */
  readonly firstByteMs: number
  readonly betweenTokensMs: number
}

/** How a leg ended. */
export type LegEnd =
  /** The sink has the answer, whole or to its last event. */
  | { readonly kind: 'served'; readonly status: number }
  /**
   * The worker is at fault, or seems to be. `begun`: the sink has had bytes, and has been told that there will be no more. `sent`: the
   * worker may have heard of the request.
   */
  | {
      readonly kind: 'failed'
      readonly failure: UpstreamFailure
      readonly status?: number
      readonly begun: boolean
      readonly sent: boolean
    }
  /** The client left, or its time is up. */
  | { readonly kind: 'stopped'; readonly begun: boolean; readonly sent: boolean }

export interface LegEvents {
  /** The first byte of a good answer. */
  onFirstByte?(): void
  /** After what was read at once, `events` being those that it ended. */
  onTokens?(events: number, nowMs: number): void
  /** A whole answer has come, of so many tokens. */
  onWhole?(tokens: number): void
}

export interface LegPlan {
  /** Whether the client asked for a stream. */
  readonly stream: boolean
  readonly sink: Sink
  readonly stop: StopSignal
  /** Happens when the worker is lost, which ends a leg that has not begun. */
  readonly lost: StopSignal
  readonly limits: LegLimits
  /** Of the worker, where it has one. */
  readonly dpRank?: number | undefined
  readonly on?: LegEvents
}
