import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRandom } from '../../math/random.ts'
import { drawAt, mostLikely, sampleToken } from './sampling.ts'

const DRAWS = 40_000

/** How often each token is drawn, over positions of one seed. */
function counts(probabilities: number[], topK: number, topP: number, seed: number): number[] {
  const found = Array.from({ length: probabilities.length }, () => 0)
  for (let position = 0; position < DRAWS; position++) {
    found[sampleToken(Float32Array.from(probabilities), topK, topP, drawAt(seed, position))]!++
  }
  return found
}

/** χ² of counts against shares; tokens with share 0 must not be drawn. */
function chiSquare(found: readonly number[], shares: readonly number[]): number {
  return found.reduce((sum, count, i) => {
    if (shares[i] === 0) return count === 0 ? sum : Infinity
    return sum + (count - DRAWS * shares[i]!) ** 2 / (DRAWS * shares[i]!)
  }, 0)
}

describe('sampling', () => {
  const probabilities = [0.05, 0.3, 0.1, 0, 0.25, 0.2, 0.1]

  it('draws tokens according to their probability, for any seed', () => {
    // 5 degrees of freedom: beyond 25.7 once in ten thousand.
    for (const seed of [0, 1, -5, 2 ** 40 + 1])
      expect(chiSquare(counts(probabilities, 0, 1, seed), probabilities)).toBeLessThan(25.7)
  })

  it('keeps the most likely with top_k, including ties with the last', () => {
    expect(chiSquare(counts(probabilities, 2, 1, 3), [0, 0.3 / 0.55, 0, 0, 0.25 / 0.55, 0, 0])).toBeLessThan(
      25.7,
    )
    const five = [0, 0.3, 0.1, 0, 0.25, 0.2, 0.1].map(p => p / 0.95)
    expect(chiSquare(counts(probabilities, 4, 1, 4), five)).toBeLessThan(25.7)
  })

  it('keeps the smallest set with share top_p, at least one', () => {
    expect(
      chiSquare(counts(probabilities, 0, 0.7, 5), [0, 0.4, 0, 0, 0.25 / 0.75, 0.2 / 0.75, 0]),
    ).toBeLessThan(25.7)
    expect(chiSquare(counts(probabilities, 0, 1e-9, 6), [0, 1, 0, 0, 0, 0, 0])).toBe(0)
    // Of the three that top_k keeps, two have 70 %.
    expect(
      chiSquare(counts(probabilities, 3, 0.7, 7), [0, 0.3 / 0.55, 0, 0, 0.25 / 0.55, 0, 0]),
    ).toBeLessThan(25.7)
  })

  it('draws independent numbers per position and per seed', () => {
    const draws = Array.from({ length: DRAWS }, (_, position) => drawAt(9, position))
    const lagged =
      draws.slice(1).reduce((sum, draw, i) => sum + (draw - 0.5) * (draws[i]! - 0.5), 0) / (DRAWS / 12)
    expect(Math.abs(lagged)).toBeLessThan(4 / Math.sqrt(DRAWS))
    expect(new Set(Array.from({ length: 1_000 }, (_, seed) => drawAt(seed, 5))).size).toBe(1_000)
  })

  it('agrees with a reference that sorts all tokens', () => {
    fc.assert(
      fc.property(
        fc.nat(),
        fc.nat({ max: 400 }),
        fc.double({ min: 0.01, max: 1, noNaN: true }),
        fc.double({ min: 0, max: 0.999, noNaN: true }),
        (seed, topK, topP, draw) => {
          const random = createRandom(seed)
          const values = Float32Array.from({ length: 300 }, () => random.uniform() ** 6)
          const sorted = [...values.keys()].sort((a, b) => values[b]! - values[a]! || a - b)
          const top = topK === 0 ? sorted : sorted.slice(0, topK)
          const total = top.reduce((sum, id) => sum + values[id]!, 0)
          let [sum, end] = [0, 0]
          while (end < top.length && (end === 0 || sum < topP * total)) sum += values[top[end++]!]!
          expect(top.slice(0, topP < 1 ? end : undefined)).toContain(
            sampleToken(values.slice(), topK, topP, draw),
          )
        },
      ),
    )
  })

  it('takes the first of equally likely tokens', () => {
    expect(mostLikely(Float32Array.of(1, 3, 2, 3))).toBe(1)
    expect(mostLikely(Float32Array.of(-Infinity, -2))).toBe(1)
  })
})
