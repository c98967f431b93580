import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { leastSquares, nonNegativeLeastSquares } from './least-squares.ts'
import { createRandom } from './random.ts'

const ones = (count: number) => new Float64Array(count).fill(1)

describe('least squares', () => {
  it('gives the line, errors and r² of a case computed by hand', () => {
    // x = 0…3, y = 1, 2, 2, 5: slope 6/5 = 1.2, intercept 0.7, residuals 0.3 0.1 −1.1 0.7,
    // Σ² = 1.8, Σ(y−ȳ)² = 9.
    const fit = leastSquares([ones(4), [0, 1, 2, 3]], [1, 2, 2, 5])
    expect(fit.coefficients[0]).toBeCloseTo(0.7, 12)
    expect(fit.coefficients[1]).toBeCloseTo(1.2, 12)
    expect(fit.r2).toBeCloseTo(1 - 1.8 / 9, 12)
    expect(fit.sigma).toBeCloseTo(Math.sqrt(1.8 / 2), 12)
    // s²/Σ(x−x̄)² = 0.9/5; s²(1/4 + 1.5²/5) = 0.9·0.7
    expect(fit.errors[1]).toBeCloseTo(Math.sqrt(0.18), 12)
    expect(fit.errors[0]).toBeCloseTo(Math.sqrt(0.63), 12)
  })

  it('finds the coefficients of exact data', () => {
    const value = fc.integer({ min: -50, max: 50 })
    fc.assert(
      fc.property(value, value, value, fc.integer({ min: 1, max: 1e6 }), (a, b, c, seed) => {
        const random = createRandom(seed)
        const x = Float64Array.from({ length: 12 }, () => random.uniform())
        const z = Float64Array.from({ length: 12 }, () => 100 * random.uniform())
        const fit = leastSquares(
          [ones(12), x, z],
          x.map((_, i) => a + b * x[i]! + c * z[i]!),
        )
        ;[a, b, c].forEach((wanted, i) => expect(fit.coefficients[i]).toBeCloseTo(wanted, 6))
      }),
    )
  })

  it('leaves residuals that no column explains', () => {
    const random = createRandom(5)
    const columns = [ones(40), ...[1, 2].map(() => Float64Array.from({ length: 40 }, () => random.uniform()))]
    const values = Float64Array.from({ length: 40 }, () => random.uniform())
    const { coefficients } = leastSquares(columns, values)
    const residuals = values.map(
      (value, i) => value - columns.reduce((sum, column, at) => sum + coefficients[at]! * column[i]!, 0),
    )
    for (const column of columns)
      expect(residuals.reduce((sum, value, i) => sum + value * column[i]!, 0)).toBeCloseTo(0, 10)
  })

  it('holds coefficients at 0 that would be negative', () => {
    const x = Float64Array.from({ length: 9 }, (_, i) => i)
    const { coefficients, errors } = nonNegativeLeastSquares(
      [ones(9), x],
      x.map(value => 10 - value),
    )
    expect(coefficients[1]).toBe(0)
    expect(errors[1]).toBe(0)
    expect(coefficients[0]).toBeCloseTo(6, 12)
  })

  it('refuses columns that depend on each other, and too few samples', () => {
    const x = [1, 2, 3, 4]
    expect(() => leastSquares([ones(4), x, x.map(value => 2 * value + 1)], x)).toThrow('column 2 depends')
    expect(() => leastSquares([ones(1), [1]], [1])).toThrow('1 samples for 2 columns')
    expect(() => leastSquares([ones(3), [1, 2]], [1, 2, 3])).toThrow('different lengths')
  })
})
