import { describe, expect, it } from 'vitest'
import { createRandom } from '../../../math/random.ts'
import { COSINE_BINS, Histogram, TIME_BINS } from './histogram.ts'

/** Quantile by sorting. */
const exact = (values: readonly number[], q: number) =>
  values.toSorted((a, b) => a - b)[Math.floor(q * (values.length - 1))]!

describe('Histogram', () => {
  it('gives quantiles of times within 10 % and the median within 5 %, from microseconds to minutes', () => {
    const random = createRandom(1)
    for (const scale of [0.05, 12, 40_000]) {
      const values = Array.from({ length: 5_000 }, () => scale * Math.exp(2 * random.uniform()))
      const histogram = new Histogram(TIME_BINS)
      for (const value of values) histogram.add(value)
      for (const q of [0.01, 0.5, 0.95, 0.999])
        expect(Math.abs(histogram.quantile(q)! / exact(values, q) - 1)).toBeLessThan(0.1)
      const { count, mean, p50 } = histogram.spread()!
      expect(count).toBe(5_000)
      expect(mean).toBeCloseTo(values.reduce((sum, value) => sum + value, 0) / 5_000, 6)
      expect(Math.abs(p50 / exact(values, 0.5) - 1)).toBeLessThan(0.05)
    }
  })

  it('gives quantiles of cosines within 0.0051', () => {
    const random = createRandom(2)
    const values = Array.from({ length: 3_000 }, () => random.uniform() ** 0.5)
    const histogram = new Histogram(COSINE_BINS)
    for (const value of values) histogram.add(value)
    for (const q of [0.01, 0.25, 0.5, 0.99])
      expect(Math.abs(histogram.quantile(q)! - exact(values, q))).toBeLessThan(0.0051)
  })

  it('clamps values outside all bins, and is undefined without values', () => {
    const histogram = new Histogram(COSINE_BINS)
    expect([histogram.quantile(0.5), histogram.spread()]).toEqual([undefined, undefined])
    for (const value of [-0.3, 1, 1.0000001]) histogram.add(value)
    expect([histogram.quantile(0)!, histogram.quantile(1)!, histogram.count]).toEqual([0, 1, 3])
  })

  it('adds another histogram', () => {
    const [one, two, both] = [new Histogram(TIME_BINS), new Histogram(TIME_BINS), new Histogram(TIME_BINS)]
    for (let ms = 1; ms < 100; ms++) {
      ;(ms % 2 === 0 ? one : two).add(ms)
      both.add(ms)
    }
    one.addAll(two)
    expect(one.spread()).toEqual(both.spread())
  })
})
