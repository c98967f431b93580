import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { boundedSolve } from './bounded-solve.ts'

describe('boundedSolve', () => {
  it('solves the equations if the solution is within the bounds', () => {
    expect(Array.from(boundedSolve([4, 1, 1, 3], [1, 2], [0, 0], [1, 1]))).toEqual([
      expect.closeTo(1 / 11),
      expect.closeTo(7 / 11),
    ])
  })

  it('solves for the others if one is at a bound', () => {
    // Without bounds: (−1, 2).
    expect(Array.from(boundedSolve([2, 1, 1, 2], [0, 3], [0, 0], [9, 9]))).toEqual([0, 1.5])
    expect(Array.from(boundedSolve([2, 1, 1, 2], [0, 3], [-9, -9], [9, 1]))).toEqual([-0.5, 1])
  })

  it('is always within its bounds', () => {
    const numbers = (length: number) =>
      fc.array(fc.double({ min: -5, max: 5, noNaN: true }), { minLength: length, maxLength: length })
    fc.assert(
      fc.property(numbers(6), numbers(3), ([a, b, c, d, e, f], values) => {
        // LLᵀ + 1: positive definite.
        const rows = [
          [a!, 0, 0],
          [b!, c!, 0],
          [d!, e!, f!],
        ]
        const matrix = rows.flatMap((row, i) =>
          rows.map((other, j) => row.reduce((sum, x, k) => sum + x * other[k]!, i === j ? 1 : 0)),
        )
        const solved = boundedSolve(matrix, values, [0, 0, 0], [1, 1, 1])
        for (const x of solved) expect(x >= 0 && x <= 1).toBe(true)
      }),
    )
  })
})
