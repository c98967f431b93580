import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createHistogram, mean, merge, quantile, quantilesOf, record } from './histogram.ts'

const values = fc.array(fc.double({ min: 1, max: 2 ** 40 - 1, noNaN: true }), {
  minLength: 1,
  maxLength: 200,
})

function histogramOf(list: readonly number[]) {
  const histogram = createHistogram()
  for (const value of list) record(histogram, value)
  return histogram
}

describe('the histogram', () => {
  it('has every quantile within 0.1 % of the true one', () => {
    fc.assert(
      fc.property(values, fc.constantFrom(0.01, 0.5, 0.9, 0.99, 1), (list, q) => {
        const exact = list.toSorted((a, b) => a - b)[Math.max(0, Math.ceil(q * list.length) - 1)]!
        expect(Math.abs(quantile(histogramOf(list), q) / exact - 1)).toBeLessThanOrEqual(0.001)
      }),
    )
  })

  it('keeps the exact mean, and counts a weight as that many values', () => {
    const histogram = createHistogram()
    record(histogram, 10, 3)
    record(histogram, 50)
    expect(mean(histogram)).toBe(20)
    expect(histogram.total).toBe(4)
    expect(quantile(histogram, 0.75)).toBeCloseTo(10, 1)
    expect(quantile(histogram, 0.76)).toBeCloseTo(50, 1)
  })

  it('merges into what it would be had it counted everything itself', () => {
    fc.assert(
      fc.property(values, values, (a, b) => {
        const merged = histogramOf(a)
        merge(merged, histogramOf(b))
        const all = histogramOf([...a, ...b])
        expect(merged.counts.every((count, bucket) => count === all.counts[bucket])).toBe(true)
        expect(merged.total).toBe(all.total)
        expect(merged.sum).toBeCloseTo(all.sum, -6)
      }),
    )
  })

  it('has no quantile if it is empty, and puts values beyond its ends into the outermost buckets', () => {
    expect(quantilesOf(createHistogram())).toEqual({ count: 0, mean: NaN, p50: NaN, p90: NaN, p99: NaN })
    const histogram = histogramOf([0, 0.5, 2 ** 50])
    expect(quantile(histogram, 0.5)).toBeCloseTo(1, 2)
    expect(quantile(histogram, 1)).toBeCloseTo(2 ** 40, -9)
  })
})
