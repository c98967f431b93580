import type { PrefillDescriptor, PrefillPolicy } from './prefill-policy.ts'

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

export const PREFILL_ROUND_ROBIN = {
  name: 'round_robin',
  create: prefillRoundRobin,
} as const satisfies PrefillDescriptor
