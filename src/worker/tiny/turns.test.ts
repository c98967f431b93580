import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { createRandom } from '../../math/random.ts'
import { power, turn, writeTurns } from './turns.ts'

/** The JavaScript engine’s own functions, whose last bit varies. */
function ofTheEngine(positions: number, headWidth: number, theta: number): Float32Array {
  const table = new Float32Array(positions * headWidth)
  const half = headWidth / 2
  for (let p = 0; p < positions; p++) {
    for (let i = 0; i < half; i++) {
      const frequency = Math.fround(1 / Math.fround(theta ** Math.fround((2 * i) / headWidth)))
      const angle = Math.fround(p * frequency)
      table[p * headWidth + i] = Math.cos(angle)
      table[p * headWidth + half + i] = Math.sin(angle)
    }
  }
  return table
}

describe('turns', () => {
  it.each([
    [2_048, 64, 10_000],
    [512, 96, 1_000_000],
    [40_960, 16, 500_000],
  ])(
    'of %i positions, head size %i and theta %i equal those of the JavaScript engine to the last bit of a float',
    (positions, headWidth, ropeTheta) => {
      const table = new Float32Array(positions * headWidth + 3)
      writeTurns({ positions, headWidth, ropeTheta }, table, 3)
      const expected = ofTheEngine(positions, headWidth, ropeTheta)
      expect(
        expected.reduce((most, value, i) => Math.max(most, Math.abs(value - table[i + 3]!)), 0),
      ).toBeLessThan(2 ** -24)
      expect(table.subarray(0, 3)).toEqual(new Float32Array(3))
    },
  )

  it('are the same bytes everywhere', () => {
    const table = new Float32Array(2_048 * 64)
    writeTurns({ positions: 2_048, headWidth: 64, ropeTheta: 10_000 }, table, 0)
    expect(createHash('sha256').update(new Uint8Array(table.buffer)).digest('hex')).toBe(
      'a66e877e3303711a6f20d23cde09f9728f59a43df74aaaf8303cc89727ecde19',
    )
  })

  it('compute cosine, sine and powers to about 1e-15', () => {
    const random = createRandom(5)
    for (let i = 0; i < 20_000; i++) {
      const angle = random.uniform() * 10 ** (i % 6)
      const [cosine, sine] = turn(angle)
      expect(Math.abs(cosine - Math.cos(angle)) + Math.abs(sine - Math.sin(angle))).toBeLessThan(
        1e-14 + angle * 2e-16,
      )
      expect(power(10_000, angle % 1) / 10_000 ** (angle % 1)).toBeCloseTo(1, 13)
    }
    expect(turn(0)).toEqual([1, 0])
    expect(power(7, 0)).toBe(1)
  })
})
