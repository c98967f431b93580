/**
 * A prefill policy picks the worker that runs prefill. Prefill workers cache prefixes, so prompts with the
 * same prefix belong together.
 */
import { PREFILL_LEAST_LOADED } from './prefill-least-loaded.ts'
import { PREFIX_HASH } from './prefill-prefix-hash.ts'
import { PREFILL_ROUND_ROBIN } from './prefill-round-robin.ts'

/** Every prefill policy. A new one is a file of its own and a line here. */
const TABLE = [PREFIX_HASH, PREFILL_ROUND_ROBIN, PREFILL_LEAST_LOADED] as const

export type PrefillPolicyName = (typeof TABLE)[number]['name']
export const PREFILL_POLICIES: readonly PrefillPolicyName[] = TABLE.map(({ name }) => name)
export const DEFAULT_PREFILL_POLICY: PrefillPolicyName = PREFIX_HASH.name

export interface PrefillDescriptor {
  readonly name: string
  create(options: PrefillOptions): PrefillPolicy
}

/** What prefill policies are made from. */
export interface PrefillOptions {
  /** A worker above this many times the average load does not get its prefix (default: 1.25, paper §6). */
  readonly overload?: number
}

export interface PrefillPolicy {
  readonly name: string
  pick(
    request: PrefillRequest,
    candidates: readonly PrefillCandidate[],
    ctx: { random(): number },
  ): PrefillDecision
  dispatched?(worker: number): void
}

export interface PrefillRequest {
  /**
   * 32-bit hash of the prompt's leading blocks; absent if there is nothing to hash (in the simulator, if the
   * prompt is shorter than one block).
   */
  readonly prefixKey?: number
}

export interface PrefillCandidate {
  readonly worker: number
  readonly inflight: number
}

export interface PrefillDecision {
  readonly worker: number
  readonly reason: string
}

export function createPrefillPolicy(
  policy: PrefillPolicyName | PrefillDescriptor,
  options: PrefillOptions = {},
): PrefillPolicy {
  return (typeof policy === 'string' ? TABLE.find(({ name }) => name === policy)! : policy).create(options)
}
