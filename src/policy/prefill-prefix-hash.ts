import { leastLoaded } from './least-loaded.ts'
import type { PrefillCandidate, PrefillDescriptor, PrefillOptions, PrefillPolicy } from './prefill-policy.ts'

/**
 * Prompts with the same prefix go to the same worker, by rendezvous hashing: each worker draws a number from
 * the prefix and its own index, and the highest wins. A worker that joins or leaves therefore moves only its
 * own prefixes. If that worker is above `overload` × the average load, the least loaded worker is picked
 * instead.
 */
export function prefixHash({ overload = 1.25 }: PrefillOptions = {}): PrefillPolicy {
  return {
    name: 'prefix_hash',
    pick({ prefixKey }, candidates, { random }) {
      if (prefixKey === undefined)
        return { worker: leastLoaded(candidates, random).worker, reason: 'no_prefix' }
      const draw = ({ worker }: PrefillCandidate) => mixed(prefixKey, worker)
      const home = candidates.reduce((best, candidate) => (draw(candidate) > draw(best) ? candidate : best))
      const total = candidates.reduce((sum, { inflight }) => sum + inflight, 0)
      // Counting this request, so that the first request to an idle cluster goes to its home.
      if (home.inflight + 1 <= Math.max(1, (overload * (total + 1)) / candidates.length))
        return { worker: home.worker, reason: 'prefix' }
      return { worker: leastLoaded(candidates, random).worker, reason: 'prefix_overloaded' }
    },
  }
}

export const PREFIX_HASH = { name: 'prefix_hash', create: prefixHash } as const satisfies PrefillDescriptor

/** 32 well-mixed bits of two numbers. */
function mixed(key: number, worker: number): number {
  let z = (key ^ Math.imul(worker + 1, 0x9e3779b1)) | 0
  z = Math.imul(z ^ (z >>> 16), 0x21f0aaad)
  z = Math.imul(z ^ (z >>> 15), 0x735a2d97)
  return (z ^ (z >>> 15)) >>> 0
}
