import { describe, expect, it } from 'vitest'
import { loadProfile } from '../cost/profile-file.ts'
import { stepParts } from '../cost/profile.ts'
import { createRandom } from '../math/random.ts'
import { mixedBatchOf } from './mixed-batch.ts'

const EXPERTS = 16
const profile = await loadProfile('h200-first')
/** Two layers with increasingly popular experts, 4 per request. */
const shares = Float64Array.from({ length: 2 * EXPERTS }, (_, at) => ((at % EXPERTS) + 1) / 34)
const mixed = mixedBatchOf(shares, EXPERTS, profile)

describe('randomly mixed batch', () => {
  it('has the experts that independent requests use together', () => {
    const random = createRandom(1)
    const rounds = 4_000
    for (const batch of [1, 5, 20]) {
      let fired = 0
      for (let round = 0; round < rounds; round++)
        for (const share of shares)
          fired += Array.from({ length: batch }, () => random.uniform() < share).some(Boolean) ? 1 : 0
      expect(mixed.experts(batch)).toBeCloseTo(fired / rounds / 2, 0)
      expect(Math.abs(mixed.experts(batch) - fired / rounds / 2)).toBeLessThan(0.15)
    }
    expect(mixed.experts(0)).toBe(0)
    expect(mixed.experts(2.5)).toBeCloseTo((mixed.experts(2) + mixed.experts(3)) / 2, 9)
    expect(mixed.experts(1e6)).toBeCloseTo(EXPERTS, 6)
  })

  it('replaces a step at the same token rate', () => {
    const { base, perExpert, perRequest } = stepParts(profile)
    const ms = (batch: number, active: number) => (base + perExpert * active + perRequest * batch) / 1000
    const step = { batch: 10, active: 7, ms: ms(10, 7) }
    const other = mixed.instead(step)
    expect(other.batch / other.ms).toBeCloseTo(step.batch / step.ms, 6)
    expect(other.active).toBeCloseTo(mixed.experts(other.batch), 6)
    expect(other.ms).toBeCloseTo(ms(other.batch, other.active), 6)
    expect(other.ms).toBeGreaterThan(step.ms)
  })

  it('equals a step that is already mixed, whatever else takes time', () => {
    const step = { batch: 12, active: mixed.experts(12), ms: 17 }
    expect(mixed.instead(step)).toEqual({
      batch: expect.closeTo(12, 9),
      active: expect.closeTo(step.active, 9),
      ms: expect.closeTo(17, 9),
    })
  })
})
