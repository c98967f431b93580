import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { clipped, coordinate, duration, fixed, many, percent, runs, tickLabel, whole } from './numbers.ts'

describe('formatted numbers', () => {
  it('groups thousands, uses a real minus sign and a dash for missing numbers', () => {
    expect(fixed(1_234_567.891, 2)).toBe('1,234,567.89')
    expect(fixed(-0.5, 1)).toBe('−0.5')
    expect(fixed(-0.0001, 2)).toBe('0.00')
    expect([fixed(Number.NaN, 2), fixed(undefined, 2), whole(Infinity), percent(Number.NaN)]).toEqual([
      '–',
      '–',
      '–',
      '–',
    ])
  })

  it('formats percentages, and does not round a small share to zero', () => {
    expect([percent(0.384), percent(0.0004), percent(0), percent(0.1234, 1)]).toEqual([
      '38\u00a0%',
      '<\u00a01\u00a0%',
      '0\u00a0%',
      '12.3\u00a0%',
    ])
  })

  it('formats durations with three digits', () => {
    expect([0.44, 93.2, 1897, 61_000, 125_400].map(duration)).toEqual([
      '0.4\u00a0ms',
      '93\u00a0ms',
      '1.90\u00a0s',
      '61.0\u00a0s',
      '2\u00a0min 5\u00a0s',
    ])
  })

  it('gives ticks the digits of their step', () => {
    expect([tickLabel(0.6, 0.2), tickLabel(0, 0.25), tickLabel(15, 5), tickLabel(2000, 500)]).toEqual([
      '0.6',
      '0.0',
      '15',
      '2,000',
    ])
  })

  it('formats counts and joins runs', () => {
    expect([many(1, 'layer'), many(1200, 'layer')]).toEqual(['1 layer', '1,200 layers'])
    expect(runs([0, 3, 4, 5, 9, 10])).toBe('0, 3–5, 9, 10')
    expect(runs([])).toBe('')
  })

  it('cuts text by characters', () => {
    expect(clipped('short', 5)).toBe('short')
    expect(clipped('😀😀😀😀', 3)).toBe('😀😀…')
  })

  it('never writes NaN, exponents or a negative zero as a coordinate', () => {
    fc.assert(
      fc.property(fc.double(), value => {
        expect(coordinate(value)).toMatch(/^(0|-?(?!0$)\d+(\.\d{1,2})?)$/)
      }),
    )
  })
})
