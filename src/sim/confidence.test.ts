import { describe, expect, it } from 'vitest'
import { studentP, studentT } from './confidence.ts'

describe('the chance of a t of Student', () => {
  it('is 5 % at the bounds of a 95 % interval, for odd and even degrees of freedom', () => {
    for (let degrees = 1; degrees <= 60; degrees++)
      expect(studentP(-studentT(degrees), degrees)).toBeCloseTo(0.05, 3)
  })

  it('agrees with tables', () => {
    expect(studentP(2.685, 9)).toBeCloseTo(0.025, 4)
    expect(studentP(3.25, 9)).toBeCloseTo(0.01, 4)
    expect(studentP(2.433, 19)).toBeCloseTo(0.025, 4)
    expect([studentP(0, 3), studentP(NaN, 3), studentP(Infinity, 4)]).toEqual([1, 1, 0])
  })
})
