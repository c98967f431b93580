import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { allPairsOf, drawPairs } from './pairs.ts'
import { createRandom } from './random.ts'

describe('pairs', () => {
  it('are distinct pairs of different rows, sorted, as many as requested or all there are', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 60 }),
        fc.integer({ min: 0, max: 2000 }),
        fc.nat(),
        (rows, count, seed) => {
          const { i, j } = drawPairs(rows, count, createRandom(seed))
          expect(i.length).toBe(Math.min(count, allPairsOf(rows)))
          const keys = Array.from(i, (a, p) => a * rows + j[p]!)
          expect(keys).toEqual(keys.toSorted((a, b) => a - b))
          expect(new Set(keys).size).toBe(i.length)
          expect(i.every((a, p) => a < j[p]! && j[p]! < rows)).toBe(true)
        },
      ),
    )
  })

  it('contain every row about equally often', () => {
    const { i, j } = drawPairs(100, 1000, createRandom(1))
    const times = new Uint32Array(100)
    for (const row of [...i, ...j]) times[row]!++
    expect(Math.max(...times) - Math.min(...times)).toBeLessThanOrEqual(2)
  })

  it('are drawn evenly, whether few or many are requested', () => {
    for (const count of [1, 8]) {
      const hits = new Float64Array(1225) // all pairs of 50 rows
      for (let seed = 0; seed < 40_000; seed++) {
        const { i, j } = drawPairs(50, count, createRandom(seed))
        i.forEach((a, p) => hits[(j[p]! * (j[p]! - 1)) / 2 + a]!++)
      }
      const mean = (40_000 * count) / 1225
      const chi = hits.reduce((sum, n) => sum + (n - mean) ** 2 / mean, 0)
      expect(chi).toBeLessThan(1224 + 4 * Math.sqrt(2 * 1224))
    }
  })
})
