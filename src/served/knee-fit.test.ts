import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { kneeFit } from './knee-fit.ts'

const random = createRandom(3)
const x = Array.from({ length: 800 }, () => 10 + 50 * random.uniform())
const noisy = (of: (value: number) => number) => x.map(value => of(value) + 0.05 * (random.uniform() - 0.5))

describe('a line that may begin with a level', () => {
  it('is a plain line if nothing bends', () => {
    const fit = kneeFit(
      x,
      noisy(value => 2 + 0.26 * value),
    )
    expect(fit.knee).toBeUndefined()
    expect(fit.slope).toBeCloseTo(0.26, 3)
    expect(fit.intercept).toBeCloseTo(2, 1)
    expect(fit.count).toBe(800)
  })

  it('finds the level, the knee and the slope after it', () => {
    const { knee, slope, intercept, slopeError } = kneeFit(
      x,
      noisy(value => Math.max(3.2, 0.5 + 0.06 * value)),
    )
    expect(knee!.x).toBeCloseTo(45, -1)
    expect(knee!.level).toBeCloseTo(3.2, 1)
    expect(slope).toBeCloseTo(0.06, 2)
    expect(intercept).toBeCloseTo(3.2 - slope * knee!.x, 1)
    expect(slopeError).toBeGreaterThan(0)
    expect(slopeError).toBeLessThan(0.002)
  })
})
