import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { extent, linearScale, niceTicks } from './scale.ts'

const finite = fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e12, max: 1e12 })

describe('niceTicks', () => {
  it('takes round steps that cover the data', () => {
    expect(niceTicks(0.13, 0.71, 5).values).toEqual([0, 0.2, 0.4, 0.6, 0.8])
    expect(niceTicks(0, 30, 4).values).toEqual([0, 10, 20, 30])
    expect(niceTicks(-3, 4, 4).values).toEqual([-4, -2, 0, 2, 4])
  })

  it('keeps whole steps for counts', () => {
    expect(niceTicks(0, 2, 5, 1).values).toEqual([0, 1, 2])
  })

  it('covers any range with few evenly spaced ticks', () => {
    fc.assert(
      fc.property(finite, finite, fc.integer({ min: 2, max: 12 }), (a, b, wanted) => {
        const [low, high] = [Math.min(a, b), Math.max(a, b)]
        const { values, step } = niceTicks(low, high, wanted)
        // Ranges narrower than that are drawn as one value.
        const slack = Math.max(Math.abs(low), Math.abs(high)) * 1e-8 + 1e-11
        expect(values[0]!).toBeLessThanOrEqual(low + slack)
        expect(values.at(-1)!).toBeGreaterThanOrEqual(high - slack)
        expect(values.length).toBeGreaterThanOrEqual(2)
        expect(values.length).toBeLessThanOrEqual(wanted + 3)
        values.slice(1).forEach((value, i) => expect((value - values[i]!) / step).toBeCloseTo(1, 3))
      }),
    )
  })

  it('is finite for any input', () => {
    for (const odd of [Number.NaN, Infinity, -Infinity, Number.MAX_VALUE, Number.MIN_VALUE, 0, -0]) {
      for (const other of [Number.NaN, Infinity, -Number.MAX_VALUE, 0, 1]) {
        const { values } = niceTicks(odd, other)
        expect(values.every(Number.isFinite)).toBe(true)
        expect(values.length).toBeLessThan(20)
      }
    }
  })
})

describe('linearScale', () => {
  it('is increasing and ends at the data or on ticks', () => {
    fc.assert(
      fc.property(finite, finite, fc.boolean(), (a, b, tight) => {
        const data = { low: Math.min(a, b), high: Math.max(a, b) }
        const scale = linearScale(data, [10, 110], { tight })
        expect(scale.at(scale.from)).toBeCloseTo(10)
        expect(scale.at(scale.to)).toBeCloseTo(110)
        expect(scale.at(data.high)).toBeGreaterThanOrEqual(scale.at(data.low))
        expect(scale.ticks.every(tick => tick >= scale.from && tick <= scale.to)).toBe(true)
      }),
    )
  })

  it('is decreasing if its positions are', () => {
    const scale = linearScale({ low: 0, high: 10 }, [100, 0])
    expect([scale.at(0), scale.at(5), scale.at(10)]).toEqual([100, 50, 0])
  })
})

describe('extent', () => {
  it('ignores values that are not finite', () => {
    expect(extent([3, Number.NaN, -1, Infinity])).toEqual({ low: -1, high: 3 })
    expect(extent([Number.NaN])).toBeUndefined()
  })
})
