import { oneOf } from './by-load.ts'
import type { DecodePolicy, PolicyDescriptor } from './decode-policy.ts'

/** Any candidate, all with the same chance. */
export function random(): DecodePolicy {
  return {
    name: 'random',
    pick: (_, candidates, ctx) => ({ worker: oneOf(candidates, ctx).worker, reason: 'random' }),
  }
}

export const RANDOM = {
  name: 'random',
  needs: [],
  reasons: ['random'],
  herds: false,
  create: random,
} as const satisfies PolicyDescriptor
