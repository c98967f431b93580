import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { holdOut } from './split.ts'

const input = (prompts: readonly (readonly [key: string, domain: number])[]) => ({
  keys: prompts.map(([key]) => key),
  domains: prompts.map(([, domain]) => domain),
})
const taken = (held: Uint8Array) => held.reduce((sum, one) => sum + one, 0)
const PROMPTS = fc.array(
  fc.tuple(fc.constantFrom('a', 'b', 'c', 'd', 'e'), fc.integer({ min: -1, max: 3 })),
  {
    minLength: 1,
    maxLength: 80,
  },
)
const SHARE = fc.integer({ min: 0, max: 100 }).map(percent => percent / 100)

describe('holdOut', () => {
  it('keeps equal prompts together, even across domains', () => {
    fc.assert(
      fc.property(PROMPTS, SHARE, fc.nat(5), (prompts, share, seed) => {
        const held = holdOut(input(prompts), share, seed)
        const sides = new Map<string, number>()
        prompts.forEach(([key], i) => {
          expect(sides.get(key) ?? held[i]).toBe(held[i])
          sides.set(key, held[i]!)
        })
      }),
    )
  })

  it('takes the given share of all prompts, and of each domain within one, if no prompt occurs twice', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.nat(10_000), { minLength: 1, maxLength: 60 }),
        SHARE,
        fc.nat(5),
        (numbers, share, seed) => {
          const prompts = numbers.map(number => [`p${number}`, number % 3] as const)
          const held = holdOut(input(prompts), share, seed)
          expect(taken(held)).toBe(Math.round(share * prompts.length))
          for (const domain of [0, 1, 2]) {
            const of = prompts.map(([, one], i) => (one === domain ? held[i]! : -1)).filter(side => side >= 0)
            expect(Math.abs(of.reduce((sum, one) => sum + one, 0) - share * of.length)).toBeLessThanOrEqual(1)
          }
        },
      ),
    )
  })

  it('does not depend on the position of prompts in their domain, but on the seed', () => {
    const prompts = Array.from({ length: 40 }, (_, i) => [`p${i}`, 0] as const)
    const names = (list: typeof prompts, seed: number) => {
      const held = holdOut(input(list), 0.3, seed)
      return list
        .filter((_, i) => held[i] === 1)
        .map(([key]) => key)
        .toSorted()
    }
    expect(names(prompts.toReversed(), 0)).toEqual(names(prompts, 0))
    expect(names(prompts, 1)).not.toEqual(names(prompts, 0))
    expect(names(prompts, 0)).toHaveLength(12)
  })

  it('takes prompts from small domains too', () => {
    const prompts = Array.from({ length: 20 }, (_, i) => [`p${i}`, Math.floor(i / 2)] as const)
    expect(taken(holdOut(input(prompts), 0.25, 0))).toBe(5)
  })
})
