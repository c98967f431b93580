/**
 * A decode policy picks the worker that decodes a request.
 *
 * It is synchronous: everything it may look at is passed in, and its decision is returned. The gateway and
 * the simulator run the same objects, so a study measures what is served. State about load changes only in
 * `dispatched` and `released`, which are called once each per request: after the last release it is bit for
 * bit what it was before the first dispatch. State about traffic (the position of `round_robin`, the usual
 * cosines of `eldr`, the learnt costs of `union` and what it saw for them) may also change in `pick`, and
 * stays.
 */
import type { Artifact } from '../fit/artifact.ts'
import { BAND } from './band.ts'
import { DOMAIN } from './domain.ts'
import { ELDR } from './eldr.ts'
import { JSQ } from './jsq.ts'
import { POWER_OF_TWO } from './power-of-two.ts'
import type { Predictor } from './predictor.ts'
import { RANDOM } from './random-pick.ts'
import { ROUND_ROBIN } from './round-robin.ts'
import type { StepCosts, UnionCost } from './step-cost.ts'
import { UNION } from './union.ts'

/**
 * Every decode policy. A new one is a file of its own and a line here; schema, help, admin API and simulator
 * follow.
 */
export const DECODE_POLICIES = [RANDOM, ROUND_ROBIN, JSQ, POWER_OF_TWO, DOMAIN, BAND, ELDR, UNION] as const

export type PolicyName = (typeof DECODE_POLICIES)[number]['name']
export const POLICIES: readonly PolicyName[] = DECODE_POLICIES.map(({ name }) => name)

/** Reasons for a decision by load, when what the policy goes by is missing. */
const FALLBACK_REASONS = ['no_signature', 'no_counts', 'no_domain', 'no_centroid'] as const

/** Every reason that a decision can have. Operators see them as metric labels, so they are few and fixed. */
export const REASONS: readonly string[] = [
  ...DECODE_POLICIES.flatMap(({ reasons }): readonly string[] => reasons),
  ...FALLBACK_REASONS,
]

/** What the rest of the code has to know about a policy. */
export interface PolicyDescriptor {
  readonly name: string
  /**
   * Inputs it needs besides load. One that needs nothing is a load balancer, the baseline that others are
   * compared with.
   */
  readonly needs: readonly Need[]
  /** Reasons that its decisions give, without those of a fallback to load. */
  readonly reasons: readonly string[]
  /**
   * True if gateways that see the same loads pick the same worker, so that stale loads make them herd
   * (anticipate.ts).
   */
  readonly herds: boolean
  /** True if it prices `holder` itself; for all others a holder counts as less loaded (prefer-holder.ts). */
  readonly pricesHolder?: true
  /** With a smaller τ it can cost much more than joining the shortest queue; absent if no τ bounds it. */
  readonly minBoundedTau?: number
  /** What the text after @ sets in a study: `eldr@0.2`, `union@true`. */
  readonly setting?: 'tau' | 'prediction'
  /** Called only if `missingFor` finds nothing. */
  create(options: PolicyOptions): DecodePolicy
}

/**
 * counts: expert counts of the request, and therefore the model's shape; signature: the request's signature;
 * clusters: a centroid per worker; labels: a domain per request. All but counts need an artifact.
 */
export type Need = 'counts' | 'signature' | 'clusters' | 'labels'

/** What policies are made from. */
export interface PolicyOptions {
  readonly workers: number
  /** Result of a fit. Without one `union` predicts from the prompt alone. */
  readonly artifact?: Artifact
  /** Shape of the model, used if there is no artifact. */
  readonly shape?: { readonly layers: number; readonly experts: number; readonly topK: number }
  /** Weight of load against similarity: width of the band of `band`, price of load of `eldr`. */
  readonly tau?: number
  /** Cost of a decode step, from a profile (default: built in). */
  readonly cost?: UnionCost
  /** Costs that change with what is observed, instead of `cost`. They outlive the policy. */
  readonly learnt?: StepCosts
  /** Replaces the prediction from counts: true patterns in a study, a cached predictor elsewhere. */
  readonly predictor?: Predictor
  /**
   * Estimated requests on a worker that other gateways dispatched and that the candidates' loads do not show
   * yet: `on` of `createUnseen`. For gateways that share their loads; without it a policy takes loads as they
   * are.
   */
  readonly unseen?: (worker: number) => number
}

export interface DecodePolicy {
  readonly name: string
  /**
   * Candidates are not empty. Never throws: if the request lacks what the policy goes by, it picks by load
   * and says so in the reason.
   */
  pick(request: RoutableRequest, candidates: readonly Candidate[], ctx: PickContext): Decision
  dispatched?(request: RoutableRequest, worker: number): void
  /** `tokenUs`: mean time between its tokens, if it was streamed and ended well. */
  released?(request: RoutableRequest, worker: number, tokenUs?: number): void
  /** True if `dispatched` must hear of this gateway's requests only: its state is about traffic, not load. */
  readonly ownRequestsOnly?: boolean
  /**
   * Chance that a step of the worker fires each expert [layers × experts], if the policy estimates it; for
   * the dashboard.
   */
  expectedExperts?(worker: number): Float32Array | undefined
  /** Sums over requests that gateways can share, if the policy keeps any. */
  readonly sums?: SharedSums
}

/**
 * Integers per cell and worker: the sum over this gateway's requests, plus what was added for other gateways'
 * requests.
 */
export interface SharedSums {
  readonly workers: number
  readonly cells: number
  /** A copy. */
  of(worker: number): Int32Array
  /** A delta that is taken back later must be the one that was added. */
  add(worker: number, delta: Int32Array): void
  /** Increases whenever a request of this gateway changes a worker's sums. */
  changes(worker: number): number
}

/** What is known about a request when its prefill ends. `dispatched` and `released` get the same object. */
export interface RoutableRequest {
  readonly id: string
  /**
   * Unit vector over the kept layers; absent if the engine sent no usable counts, or if they carry no
   * information.
   */
  readonly signature?: Float32Array
  /**
   * Expert counts of prefill [layers × experts], over all prompt tokens or recent ones, in any scale; absent
   * if the engine sent none.
   */
  readonly counts?: Uint16Array | Float32Array
  /** Index into the artifact's domains, if the request is labelled. */
  readonly domain?: number
  /** Length of the prompt, for the loads of candidates in the simulator. */
  readonly promptTokens?: number
  /** For a turn of a conversation: the worker that has the KV cache of the turn before. */
  holder?: KvHolder
}

/** A worker that spares a request time, once, spread over its expected decode steps. */
export interface KvHolder {
  readonly worker: number
  readonly savedUsPerStep: number
}

/**
 * A worker that may be picked now: healthy, not draining. `worker` is its index in the cluster and its
 * centroid's row.
 */
export interface Candidate {
  readonly worker: number
  /** Requests dispatched to it that have not ended. */
  readonly inflight: number
  /** Prompt tokens of these requests, which fill its KV cache; absent if unknown. */
  readonly tokens?: number
}

/** Outside state that a policy may use. Injected, so that a run can be repeated exactly. */
export interface PickContext {
  /** Uniform in [0, 1). */
  random(): number
}

export interface Decision {
  readonly worker: number
  /** One of `REASONS`. */
  readonly reason: string
  /**
   * Cosine to the centroid of each candidate, in their order, if the policy compared them; NaN for a worker
   * without a centroid.
   */
  readonly similarities?: Float32Array
  /** Number of candidates in the locality band. */
  readonly band?: number
}

/** The default decode policy: it has the lowest tail and needs no artifact (docs/evidence/harm.md). */
export const DEFAULT_POLICY: PolicyName = UNION.name

export function policyNamed(name: string): PolicyDescriptor | undefined {
  return DECODE_POLICIES.find(policy => policy.name === name)
}

/** For functions that take a name of the table or a descriptor from elsewhere. */
export function descriptorOf(policy: PolicyName | PolicyDescriptor): PolicyDescriptor {
  return typeof policy === 'string' ? policyNamed(policy)! : policy
}

export function isLoadBalancer({ needs }: PolicyDescriptor): boolean {
  return needs.length === 0
}

export function needsArtifact({ needs }: PolicyDescriptor): boolean {
  return needs.some(need => need !== 'counts')
}

/** True if it reads the expert counts of hand-offs. */
export function readsCounts({ needs }: PolicyDescriptor): boolean {
  return needs.includes('counts') || needs.includes('signature')
}
