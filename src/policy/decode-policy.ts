/**
 * A decode policy picks the worker on which one request will generate.
 *
 * It is pure and synchronous: what it may look at comes in, what it decides goes out. The gateway and the simulator run the same
 * objects, so what is studied is what is served. State that follows the cluster changes in `dispatched` and `released` only, once each
 * a request, and after the last release what follows load is to the last bit what it was before the first dispatch. (Round robin's position
 * is no load: going back, it would send every request to an idle cluster to the first worker.)
 */
export interface DecodePolicy {
  readonly name: PolicyName
  /** Candidates are not empty. Never throws, whatever the request lacks: then it goes by load, and the reason says so. */
  pick(request: RoutableRequest, candidates: readonly Candidate[], ctx: PickContext): Decision
  dispatched?(request: RoutableRequest, worker: number): void
  released?(request: RoutableRequest, worker: number): void
  /** Chance that a step of the worker fires each expert [layers × experts], where the policy keeps an estimate; for people to look at. */
  expectedExperts?(worker: number): Float32Array | undefined
  /** Where the policy keeps sums over requests that gateways can tell each other. */
  readonly sums?: SharedSums
}

/** Whole numbers for each cell of each worker: those of this gateway's requests, and what was added for the requests of others. */
export interface SharedSums {
  readonly workers: number
  readonly cells: number
  /** A copy. */
  of(worker: number): Int32Array
  /** What is taken away later must be what was added. */
  add(worker: number, delta: Int32Array): void
  /** Rises whenever a request of this gateway has changed a worker's sums. */
  changes(worker: number): number
}

export const POLICIES = ['random', 'round_robin', 'jsq', 'power_of_two', 'domain', 'eldr', 'union'] as const
export type PolicyName = (typeof POLICIES)[number]

/** What is known of a request when its prefill has ended. The same object comes back in `dispatched` and `released`. */
export interface RoutableRequest {
  readonly id: string
  /** Unit vector over the kept layers; absent when the engine sent no usable counts, or they say nothing. */
  readonly signature?: Float32Array
  /** Experts at prefill [layers × experts]: prompt tokens, or recent ones, in any scale; absent when the engine sent none. */
  readonly counts?: Uint16Array | Float32Array
  /** Index into the artifact's domains, where somebody labelled the request. */
  readonly domain?: number
}

/** A worker that may be picked now: healthy, not draining. `worker` is its index in the cluster, and its centroid's row. */
export interface Candidate {
  readonly worker: number
  /** Requests dispatched to it and not ended. */
  readonly inflight: number
}

/** What a policy may use of the world. Injected, so that a run can be repeated to the bit. */
export interface PickContext {
  /** Uniform in [0, 1). */
  random(): number
}

/** Why a worker was picked. Operators see these as metric labels, so they are few and fixed. */
export const REASONS = [
  'random',
  'round_robin',
  'least_loaded',
  'two_choices',
  'domain',
  'band_hit',
  'band_spill',
  'least_cost',
  'no_signature',
  'no_counts',
  'no_domain',
  'no_centroid',
] as const
export type Reason = (typeof REASONS)[number]

export interface Decision {
  readonly worker: number
  readonly reason: Reason
  /** Cosine to the centroid of each candidate, in their order, where the policy looked at them; NaN for a worker without a centroid. */
  readonly similarities?: Float32Array
  /** How many candidates were in the locality band. */
  readonly band?: number
}
