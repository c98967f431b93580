/** Delta debugging finds the faults that matter, in few runs. */
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { shrink } from './shrink.ts'

const always = () => true
const all = Array.from({ length: 40 }, (_, index) => index)

describe('shrink', () => {
  it('finds one culprit among forty in a few runs', async () => {
    const { items, runs, isMinimal } = await shrink(all, async some => some.includes(23), always)
    expect([items, isMinimal]).toEqual([[23], true])
    expect(runs).toBeLessThan(16)
  })

  it('finds every set that only fails together', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(fc.integer({ min: 0, max: 39 }), { minLength: 1, maxLength: 4 }),
        async needed => {
          const fails = async (some: readonly number[]) => needed.every(item => some.includes(item))
          const { items } = await shrink(all, fails, always)
          expect([...items].sort((a, b) => a - b)).toEqual(needed.toSorted((a, b) => a - b))
        },
      ),
    )
  })

  it('keeps the whole list if nothing less fails', async () => {
    const fails = async (some: readonly number[]) => some.length === all.length
    expect((await shrink(all, fails, always)).items).toEqual(all)
  })

  it('stops at the limit with a list that fails', async () => {
    const fails = async (some: readonly number[]) => some.includes(3) && some.includes(30)
    const { items, runs, isMinimal } = await shrink(all, fails, done => done < 5)
    expect([runs, isMinimal]).toEqual([5, false])
    expect(await fails(items)).toBe(true)
  })
})
