import type { Candidate, DecodePolicy, PolicyDescriptor } from './decode-policy.ts'

/**
 * The next worker after the last one dispatched to, skipping workers that are not candidates. The position
 * does not go back when requests end; otherwise every request to an idle cluster would go to the first
 * worker. It follows this gateway's requests only: gateways that followed each other's would all pick the
 * same worker next.
 */
export function roundRobin(): DecodePolicy {
  let next = 0
  return {
    name: 'round_robin',
    ownRequestsOnly: true,
    pick(_, candidates) {
      // The nearest at or after `next`, wrapping around.
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

export const ROUND_ROBIN = {
  name: 'round_robin',
  needs: [],
  reasons: ['round_robin'],
  herds: false,
  create: roundRobin,
} as const satisfies PolicyDescriptor
