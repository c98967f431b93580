import { describe, expect, it } from 'vitest'
import { nonNegativeLeastAbsolute } from './least-absolute.ts'
import { createRandom } from './random.ts'

const x = Array.from({ length: 201 }, (_, i) => i / 10)
const ones = x.map(() => 1)

describe('least absolute deviations', () => {
  it('of a constant is the median', () => {
    const [level] = nonNegativeLeastAbsolute([[1, 1, 1, 1, 1]], [3, 1, 100, 2, 4])
    expect(level).toBeCloseTo(3, 4)
  })

  it('finds a line through a third of values that are far too large', () => {
    const random = createRandom(5)
    const values = x.map(at => (2 + 3 * at) * (random.uniform() < 1 / 3 ? 5 + 20 * random.uniform() : 1))
    const [base, slope] = nonNegativeLeastAbsolute([ones, x], values)
    expect(base).toBeCloseTo(2, 3)
    expect(slope).toBeCloseTo(3, 4)
  })

  it('gives 0 to what would be negative, and fits the others again', () => {
    const [base, slope] = nonNegativeLeastAbsolute(
      [ones, x],
      x.map(at => 50 - at),
    )
    expect(slope).toBe(0)
    expect(base).toBeCloseTo(40, 3)
  })

  it('gives 0 to a column that follows from the others', () => {
    const doubled = x.map(at => 2 * at)
    const [base, slope, again] = nonNegativeLeastAbsolute(
      [ones, x, doubled],
      x.map(at => 1 + at),
    )
    expect([base, slope, again].map(value => Number(value!.toFixed(6)))).toEqual([1, 1, 0])
  })
})
