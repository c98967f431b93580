/**
 * Live recalibration as the gateway sees it. `src/adapt` implements it, which the gateway does not import:
 * `cli/` passes it in.
 */
import type { Artifact } from '../../fit/artifact.ts'
import type { PolicyName, PolicyOptions, RoutableRequest } from '../../policy/decode-policy.ts'
import type { AdaptSettings } from '../config/settings.ts'
import type { AdaptControl } from '../control/admin/admin-context.ts'
import type { AdaptAttempt, AdaptSwap } from '../observe/insight/wire.ts'
import type { AdaptHold } from '../routing/adapt-hold.ts'

export interface Adaptation extends AdaptControl {
  /** `plain`: plain counts of a request that was signed by recent ones. */
  decided(request: RoutableRequest, plain: Uint16Array | undefined): void
  /** Expert counts over the decode steps of a request, from its worker. */
  reported(id: string, steps: number, counts: ArrayLike<number>): void
  /** A stream has ended: mean time between its tokens. */
  streamed(tokenMs: number): void
  /** Another artifact was loaded, or the one in force was refitted to other workers. */
  artifactChanged(cause: 'artifact' | 'refit'): void
  /** A hold, or none, that all gateways of the same workers share. */
  held(hold: AdaptHold | undefined): void
  close(): void
}

export type CreateAdaptation = (settings: AdaptSettings, host: AdaptationHost) => Adaptation

/** A module that exports this can be named by its URL, for the process that decides. */
export interface AdaptationModule {
  readonly createAdaptation: CreateAdaptation
}

export interface AdaptationHost {
  /** Undefined without an artifact or decode workers, or if the workers cannot have its clusters. */
  target(): AdaptationTarget | undefined
  /** Why there is no target. */
  whyNoTarget(): string
  /** Requests on decode workers now, also those of other gateways. */
  running(): number
  /** True while an experiment holds the routing: nothing can be loaded. */
  isHeld(): boolean
  /** Loads an artifact here and on all replicas, with the hold that goes with it. Resolves with its hash. */
  load(
    path: string,
    shownAs: string,
    assignment: ReadonlyMap<number, number>,
    hold?: AdaptHold,
  ): Promise<string>
  /** Bytes of an artifact with this hash, if other gateways have shared them. */
  fetch(sha256: string): Promise<Uint8Array | undefined>
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
  /** Names of the decode workers that take requests now. */
  readonly serving: readonly string[]
  /** `worker`: position in `workers`. */
  inflight(): readonly { readonly worker: number; readonly signature: Float32Array }[]
}

export type AdaptationEvent =
  | { readonly kind: 'drift'; readonly meanRank: number; readonly sinceMs: number }
  | { readonly kind: 'recovered'; readonly meanRank: number }
  | { readonly kind: 'judged'; readonly attempt: AdaptAttempt }
  | { readonly kind: 'swapped' | 'undone' | 'rolled_back'; readonly swap: AdaptSwap }
  | { readonly kind: 'kept'; readonly swap: AdaptSwap; readonly why: string }
  | { readonly kind: 'failed'; readonly problem: string }
  | { readonly kind: 'skipped'; readonly file: string; readonly problem: string }
