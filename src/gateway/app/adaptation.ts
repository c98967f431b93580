/**
 * Live recalibration as the gateway sees it. `src/adapt` implements it, which the gateway does not import:
 * `cli/` passes it in.
 */
import type { Artifact } from '../../fit/artifact.ts'
import type { PolicyName, PolicyOptions, RoutableRequest } from '../../policy/decode-policy.ts'
import type { AdaptSettings } from '../config/settings.ts'
import type { AdaptControl } from '../control/admin/admin-context.ts'
import type { AdaptAttempt, AdaptSwap } from '../observe/insight/wire.ts'

export interface Adaptation extends AdaptControl {
  /** `plain`: plain counts of a request that was signed by recent ones. */
  decided(request: RoutableRequest, plain: Uint16Array | undefined): void
  /** Expert counts over the decode steps of a request, from its worker. */
  reported(id: string, steps: number, counts: ArrayLike<number>): void
  /** A stream has ended: mean time between its tokens. */
  streamed(tokenMs: number): void
  artifactChanged(): void
  close(): void
}

export type CreateAdaptation = (settings: AdaptSettings, host: AdaptationHost) => Adaptation

/** A module that exports this can be named by its URL, for the process that decides. */
export interface AdaptationModule {
  readonly createAdaptation: CreateAdaptation
}

export interface AdaptationHost {
  /** Undefined without an artifact or decode workers. */
  target(): AdaptationTarget | undefined
  /** Requests on decode workers now. */
  running(): number
  /** True while an experiment holds the routing: nothing can be loaded. */
  isHeld(): boolean
  /** Loads an artifact here and on all replicas. Resolves with its hash. */
  load(path: string, shownAs: string, assignment: ReadonlyMap<number, number>): Promise<string>
  happened(event: AdaptationEvent): void
}

/** The routing in force. */
export interface AdaptationTarget {
  readonly artifact: Artifact
  readonly sha256: string
  readonly file: string
  readonly policy: PolicyName
  readonly tau: number
  readonly cost?: PolicyOptions['cost']
  /** Decode workers in the order of the clusters that a refit would give them. */
  readonly workers: readonly { readonly cluster?: number; readonly fixed: boolean }[]
  /** Those clusters, and the ones in force, by worker index. */
  readonly assignment: ReadonlyMap<number, number>
  readonly assigned: ReadonlyMap<number, number>
  /** `worker`: position in `workers`. */
  inflight(): readonly { readonly worker: number; readonly signature: Float32Array }[]
}

export type AdaptationEvent =
  | { readonly kind: 'drift'; readonly meanRank: number; readonly sinceMs: number }
  | { readonly kind: 'judged'; readonly attempt: AdaptAttempt }
  | { readonly kind: 'swapped' | 'kept' | 'undone' | 'rolled_back'; readonly swap: AdaptSwap }
  | { readonly kind: 'failed'; readonly problem: string }
