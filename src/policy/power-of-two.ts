import { byLoad, oneOf } from './by-load.ts'
import type { DecodePolicy, PolicyDescriptor } from './decode-policy.ts'

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

export const POWER_OF_TWO = {
  name: 'power_of_two',
  needs: [],
  reasons: ['two_choices'],
  herds: false,
  create: powerOfTwo,
} as const satisfies PolicyDescriptor
