import { leastLoaded } from './least-loaded.ts'

/** A prefill policy picks the worker that reads a prompt. Prefill workers keep what they have read, so prompts that begin alike belong together. */
export interface PrefillPolicy {
  readonly name: PrefillPolicyName
  pick(
    request: PrefillRequest,
    candidates: readonly PrefillCandidate[],
    ctx: { random(): number },
  ): PrefillDecision
  dispatched?(worker: number): void
}

export const PREFILL_POLICIES = ['prefix_hash', 'round_robin', 'least_loaded'] as const
export type PrefillPolicyName = (typeof PREFILL_POLICIES)[number]

export interface PrefillRequest {
  /** Hash of the prompt's leading blocks, 32 bits; absent when the prompt is shorter than one. */
  readonly prefixKey?: number
}

export interface PrefillCandidate {
  readonly worker: number
  readonly inflight: number
}

export type PrefillReason = 'prefix' | 'prefix_overloaded' | 'no_prefix' | 'round_robin' | 'least_loaded'

export interface PrefillDecision {
  readonly worker: number
  readonly reason: PrefillReason
}

export interface PrefixHashOptions {
  /** A worker above this many times the average load does not get its prefix. Paper §6. */
  readonly overload?: number
}

/**
 * Prompts that begin alike go to the same worker, by rendezvous hashing: each worker draws a number from the prefix and its own index, and
 * the highest wins, so that a worker that comes or goes moves only its own prefixes. When that worker is past 1.25 × the average load the
 * least loaded takes over.
 */
export function prefixHash({ overload = 1.25 }: PrefixHashOptions = {}): PrefillPolicy {
  return {
    name: 'prefix_hash',
    pick({ prefixKey }, candidates, { random }) {
      if (prefixKey === undefined)
        return { worker: leastLoaded(candidates, random).worker, reason: 'no_prefix' }
      const draw = ({ worker }: PrefillCandidate) => mixed(prefixKey, worker)
      const home = candidates.reduce((best, candidate) => (draw(candidate) > draw(best) ? candidate : best))
      const total = candidates.reduce((sum, { inflight }) => sum + inflight, 0)
      // With this request counted, so that an idle cluster's first request goes home.
      if (home.inflight + 1 <= Math.max(1, (overload * (total + 1)) / candidates.length))
        return { worker: home.worker, reason: 'prefix' }
      return { worker: leastLoaded(candidates, random).worker, reason: 'prefix_overloaded' }
    },
  }
}

export function prefillRoundRobin(): PrefillPolicy {
  let next = 0
  return {
    name: 'round_robin',
    pick(_, candidates) {
      const sorted = candidates.toSorted((a, b) => a.worker - b.worker)
      return {
        worker: (sorted.find(({ worker }) => worker >= next) ?? sorted[0]!).worker,
        reason: 'round_robin',
      }
    },
    dispatched(worker) {
      next = worker + 1
    },
  }
}

export function prefillLeastLoaded(): PrefillPolicy {
  return {
    name: 'least_loaded',
    pick: (_, candidates, { random }) => ({
      worker: leastLoaded(candidates, random).worker,
      reason: 'least_loaded',
    }),
  }
}

export function createPrefillPolicy(name: PrefillPolicyName): PrefillPolicy {
  if (name === 'prefix_hash') return prefixHash()
  return name === 'round_robin' ? prefillRoundRobin() : prefillLeastLoaded()
}

/** 32 well-mixed bits of two numbers. */
function mixed(key: number, worker: number): number {
  let z = (key ^ Math.imul(worker + 1, 0x9e3779b1)) | 0
  z = Math.imul(z ^ (z >>> 16), 0x21f0aaad)
  z = Math.imul(z ^ (z >>> 15), 0x735a2d97)
  return (z ^ (z >>> 15)) >>> 0
}
