import { byLoad } from './by-load.ts'
import type { DecodePolicy, PolicyDescriptor } from './decode-policy.ts'

/** Join the shortest queue. */
export function jsq(): DecodePolicy {
  return { name: 'jsq', pick: (_, candidates, ctx) => byLoad(candidates, ctx, 'least_loaded') }
}

export const JSQ = {
  name: 'jsq',
  needs: [],
  reasons: ['least_loaded'],
  herds: true,
  create: jsq,
} as const satisfies PolicyDescriptor
