import type { Candidate, Decision, PickContext } from './decode-policy.ts'
import { leastLoaded } from './least-loaded.ts'

/**
 * The least loaded candidate, ties broken at random. Every policy falls back to this; the reason says why.
 */
export function byLoad(candidates: readonly Candidate[], { random }: PickContext, reason: string): Decision {
  return { worker: leastLoaded(candidates, random).worker, reason }
}

/** Any element, all with the same chance. */
export function oneOf<T>(list: readonly T[], { random }: PickContext): T {
  return list[Math.min(list.length - 1, Math.floor(random() * list.length))]!
}
