import { describe, expect, it } from 'vitest'
import { createRandom } from './random.ts'

const take = (n: number, random = createRandom(1)) => Array.from({ length: n }, () => random.uniform())

describe('random numbers', () => {
  it('are the same for the same seed and differ between seeds', () => {
    expect(take(5)).toEqual(take(5))
    expect(take(5, createRandom(2))).not.toEqual(take(5))
    expect(take(5, createRandom(2 ** 32 + 1))).not.toEqual(take(5))
    expect(take(5, createRandom(2 ** 32 + 1).fork(0))).not.toEqual(take(5, createRandom(1).fork(0)))
  })

  it('do not change between releases, because artifacts depend on them', () => {
    const random = createRandom(42)
    expect([random.below(1000), random.below(1000), random.below(1000), random.fork(3).below(1000)])
      .toMatchInlineSnapshot(`
      [
        153,
        18,
        913,
        671,
      ]
    `)
  })

  it('fill [0, 1) evenly', () => {
    const buckets = Array.from({ length: 16 }, () => 0)
    for (const x of take(160_000)) {
      expect(x >= 0 && x < 1).toBe(true)
      buckets[Math.floor(x * 16)]!++
    }
    // Chi-squared with 15 degrees of freedom: one in 10,000 seeds exceeds 44.
    expect(buckets.reduce((sum, n) => sum + (n - 10_000) ** 2 / 10_000, 0)).toBeLessThan(44)
  })

  it('come in streams that do not depend on earlier draws', () => {
    const random = createRandom(5)
    const fresh = take(3, random.fork(7))
    random.uniform()
    expect(take(3, random.fork(7))).toEqual(fresh)
    expect(take(3, random.fork(8))).not.toEqual(fresh)
  })
})
