import { describe, expect, it } from 'vitest'
import { createRandom } from '../../../math/random.ts'
import { COSINE_BINS, Tally, TIME_BINS } from './tally.ts'

/** The slow obvious way. */
const exact = (values: readonly number[], q: number) =>
  values.toSorted((a, b) => a - b)[Math.floor(q * (values.length - 1))]!

describe('a tally', () => {
  it('knows quantiles of times within a tenth, the median within a twentieth, from microseconds to minutes', () => {
    const random = createRandom(1)
    for (const scale of [0.05, 12, 40_000]) {
      const values = Array.from({ length: 5_000 }, () => scale * Math.exp(2 * random.uniform()))
      const tally = new Tally(TIME_BINS)
      for (const value of values) tally.add(value)
      for (const q of [0.01, 0.5, 0.95, 0.999])
        expect(Math.abs(tally.quantile(q)! / exact(values, q) - 1)).toBeLessThan(0.1)
      const { count, mean, p50 } = tally.spread()!
      expect(count).toBe(5_000)
      expect(mean).toBeCloseTo(values.reduce((sum, value) => sum + value, 0) / 5_000, 6)
      expect(Math.abs(p50 / exact(values, 0.5) - 1)).toBeLessThan(0.05)
    }
  })

  it('knows quantiles of cosines within half a hundredth', () => {
    const random = createRandom(2)
    const values = Array.from({ length: 3_000 }, () => random.uniform() ** 0.5)
    const tally = new Tally(COSINE_BINS)
    for (const value of values) tally.add(value)
    for (const q of [0.01, 0.25, 0.5, 0.99])
      expect(Math.abs(tally.quantile(q)! - exact(values, q))).toBeLessThan(0.0051)
  })

  it('takes what no bin is for, and is undefined of nothing', () => {
    const tally = new Tally(COSINE_BINS)
    expect([tally.quantile(0.5), tally.spread()]).toEqual([undefined, undefined])
    for (const value of [-0.3, 1, 1.0000001]) tally.add(value)
    expect([tally.quantile(0)!, tally.quantile(1)!, tally.count]).toEqual([0, 1, 3])
  })

  it('is the sum of two', () => {
    const [one, two, both] = [new Tally(TIME_BINS), new Tally(TIME_BINS), new Tally(TIME_BINS)]
    for (let ms = 1; ms < 100; ms++) {
      ;(ms % 2 === 0 ? one : two).add(ms)
      both.add(ms)
    }
    one.addAll(two)
    expect(one.spread()).toEqual(both.spread())
  })
})
