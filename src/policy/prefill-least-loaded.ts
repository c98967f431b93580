import { leastLoaded } from './least-loaded.ts'
import type { PrefillDescriptor, PrefillPolicy } from './prefill-policy.ts'

export function prefillLeastLoaded(): PrefillPolicy {
  return {
    name: 'least_loaded',
    pick: (_, candidates, { random }) => ({
      worker: leastLoaded(candidates, random).worker,
      reason: 'least_loaded',
    }),
  }
}

export const PREFILL_LEAST_LOADED = {
  name: 'least_loaded',
  create: prefillLeastLoaded,
} as const satisfies PrefillDescriptor
