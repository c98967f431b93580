import type { Candidate, DecodePolicy, Decision, PickContext, Reason } from './decode-policy.ts'
import { leastLoaded } from './least-loaded.ts'

/** The least loaded candidate, ties at random: what every policy falls back to, with the reason why. */
export function byLoad(candidates: readonly Candidate[], { random }: PickContext, reason: Reason): Decision {
  return { worker: leastLoaded(candidates, random).worker, reason }
}

/** Join the shortest queue. */
export function jsq(): DecodePolicy {
  return { name: 'jsq', pick: (_, candidates, ctx) => byLoad(candidates, ctx, 'least_loaded') }
}

/** Any candidate, all with the same chance. */
export function random(): DecodePolicy {
  return {
    name: 'random',
    pick: (_, candidates, ctx) => ({ worker: oneOf(candidates, ctx).worker, reason: 'random' }),
  }
}

/** The less loaded of two candidates drawn at random. */
export function powerOfTwo(): DecodePolicy {
  return {
    name: 'power_of_two',
    pick(_, candidates, ctx) {
      const first = oneOf(candidates, ctx)
      const others = candidates.filter(candidate => candidate !== first)
      return byLoad(others.length === 0 ? [first] : [first, oneOf(others, ctx)], ctx, 'two_choices')
    },
  }
}

/**
 * The next worker after the last one dispatched to, passing over those that are not candidates. Its position is no load: it does not go
 * back when requests end, or every request to an idle cluster would go to the first worker.
 */
export function roundRobin(): DecodePolicy {
  let next = 0
  return {
    name: 'round_robin',
    pick(_, candidates) {
      // The nearest at or after `next`, going round: those before it come after all others.
      const distance = ({ worker }: Candidate) => (worker >= next ? worker - next : worker + 2 ** 32 - next)
      const { worker } = candidates.reduce((best, candidate) =>
        distance(candidate) < distance(best) ? candidate : best,
      )
      return { worker, reason: 'round_robin' }
    },
    dispatched(_, worker) {
      next = worker + 1
    },
  }
}

function oneOf<T>(list: readonly T[], { random }: PickContext): T {
  return list[Math.min(list.length - 1, Math.floor(random() * list.length))]!
}
