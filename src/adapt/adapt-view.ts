/** What `GET /eldr/adapt` shows and what log and events say. */
import type { Lineage } from '../fit/artifact.ts'
import type { DriftPoint } from './drift-history.ts'

/**
 * idle: nothing to adapt; steady: the artifact fits; drifting: a refit is due; watching: after a swap; held:
 * after one that was taken back.
 */
export type AdaptState = 'idle' | 'steady' | 'drifting' | 'refitting' | 'swapping' | 'watching' | 'held'

export interface AdaptView {
  readonly mode: 'suggest' | 'on'
  readonly state: AdaptState
  /** Why it is idle or held. */
  readonly note?: string
  /** Why no swap can be made. */
  readonly problem?: string
  readonly drift: {
    /** Mean rank of recent requests among the calibration requests: about 0.5 while the artifact fits. */
    readonly meanRank?: number
    /** When the drift began; absent without drift. */
    readonly sinceMs?: number
    readonly history: readonly DriftPoint[]
  }
  readonly sample: {
    readonly requests: number
    readonly capacity: number
    readonly halfLifeMs: number
    readonly bytes: number
    /** Requests whose workers reported their decode counts. */
    readonly reported: number
    /** Requests since the change that a refit needs, and those that there are. */
    readonly needed: number
    readonly usable: number
  }
  readonly minGain: number
  /** The last attempt. */
  readonly last?: AttemptView
  /** Whether `POST /eldr/adapt/swap` has something to swap to. */
  readonly suggestion: boolean
  /** Newest first. */
  readonly swaps: readonly SwapView[]
}

export interface AttemptView {
  readonly atMs: number
  readonly seconds: number
  readonly verdict: 'swap' | 'suggest' | 'no_gain' | 'failed'
  /** Why it failed. */
  readonly problem?: string
  /**
   * Share of the time of a decode step that it should save, mean ± half; absent if it failed, as all below.
   */
  readonly gain?: number
  readonly gainHalf?: number
  readonly judgedBy?: Lineage['judgedBy']
  readonly fitted?: number
  readonly heldOut?: number
  /** Requests in flight whose home changes, of `inflight`. */
  readonly moved?: number
  readonly inflight?: number
}

export interface SwapView extends Lineage {
  readonly file: string
  readonly sha256: string
  readonly moved?: number
  readonly state: 'in_force' | 'past' | 'undone' | 'rolled_back'
  /** p99 of TPOT before and after it, while enough streams are known. */
  readonly p99BeforeMs?: number
  readonly p99AfterMs?: number
}

/** No refit after a swap was taken back, on all gateways of the same workers. */
export interface AdaptHold {
  readonly how: 'undone' | 'rolled_back'
  /** Unix time. */
  readonly untilMs: number
  /** Hash of the swap. */
  readonly sha256: string
}

export type AdaptEvent =
  | { readonly kind: 'drift'; readonly meanRank: number; readonly sinceMs: number }
  | { readonly kind: 'recovered'; readonly meanRank: number }
  | { readonly kind: 'judged'; readonly attempt: AttemptView }
  | { readonly kind: 'swapped' | 'undone' | 'rolled_back'; readonly swap: SwapView }
  /** `why`: the end of the watch. */
  | { readonly kind: 'kept'; readonly swap: SwapView; readonly why: string }
  | { readonly kind: 'failed'; readonly problem: string }
  /** A file of the folder that cannot be read. */
  | { readonly kind: 'skipped'; readonly file: string; readonly problem: string }
