import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { LiveSample } from './live-sample.ts'

const HALF_LIFE_MS = 10_000
const sampleOf = (capacity: number, seed = 1) =>
  new LiveSample({ capacity, halfLifeMs: HALF_LIFE_MS, random: createRandom(seed) })
const countsOf = (value: number) => Uint16Array.of(value, 1, 2, 3)

describe('the live sample', () => {
  it('never holds more than its capacity, in memory that does not grow', () => {
    const sample = sampleOf(64)
    sample.offer({ id: 'first', counts: countsOf(0) }, 0)
    const { bytes } = sample
    for (let at = 1; at < 5_000; at++) sample.offer({ id: `${at}`, counts: countsOf(at % 9) }, at)
    expect(sample.size).toBe(64)
    expect(sample.bytes).toBe(bytes)
    expect(bytes).toBe(64 * 4 * 2)
  })

  it('keeps requests of each age in proportion to their weight', () => {
    const ages: number[] = []
    for (let seed = 0; seed < 60; seed++) {
      const sample = sampleOf(100, seed)
      for (let at = 0; at < 10_000; at++) sample.offer({ id: `${at}`, counts: countsOf(at % 7) }, 10 * at)
      for (let halfLives = 0; halfLives < 4; halfLives++) {
        const [from, to] = [100_000 - (halfLives + 1) * HALF_LIFE_MS, 100_000 - halfLives * HALF_LIFE_MS]
        ages[halfLives] = (ages[halfLives] ?? 0) + sample.countSince(from) - sample.countSince(to)
      }
    }
    for (const halfLives of [1, 2, 3]) {
      const ratio = ages[halfLives]! / ages[halfLives - 1]!
      expect(ratio).toBeGreaterThan(0.4)
      expect(ratio).toBeLessThan(0.6)
    }
  })

  it('gives copies, oldest first, of the requests since a time, in two halves', () => {
    const sample = sampleOf(200)
    for (let at = 0; at < 200; at++) sample.offer({ id: `${at}`, counts: countsOf(at) }, at)
    const { rows, cells, counts, heldOut } = sample.snapshot(100)
    expect([rows, cells]).toEqual([100, 4])
    expect(Array.from({ length: rows }, (_, row) => counts[row * cells]!)).toEqual(
      Array.from({ length: 100 }, (_, at) => 100 + at),
    )
    const held = heldOut.reduce((a, b) => a + b, 0)
    expect(held).toBeGreaterThan(30)
    expect(held).toBeLessThan(70)
    counts.fill(9)
    expect(sample.snapshot(100).counts[0]).toBe(100)
  })

  it('keeps a reported pattern with its request, and drops it when another takes the place', () => {
    const sample = sampleOf(1)
    sample.offer({ id: 'a', counts: countsOf(1) }, 0)
    sample.report('a', Uint8Array.of(255, 0, 0, 1))
    sample.report('unknown', Uint8Array.of(1, 1, 1, 1))
    sample.report('a', Uint8Array.of(1)) // of another model: ignored
    expect(sample.snapshot().patterns).toEqual(Uint8Array.of(255, 0, 0, 1))
    expect(sample.reported).toBe(1)
    sample.offer({ id: 'b', counts: countsOf(2) }, 1_000_000)
    expect(sample.snapshot()).toMatchObject({ rows: 1, reported: Uint8Array.of(0) })
    expect(sample.snapshot().patterns).toEqual(new Uint8Array(4))
  })

  it('scales recent counts, whose scale does not matter, to whole numbers', () => {
    const sample = sampleOf(2)
    sample.offer({ id: 'a', counts: Float32Array.of(0.5, 0.25, 0, 0.125), plain: countsOf(7) }, 0)
    const { counts, plain } = sample.snapshot()
    expect(counts).toEqual(Uint16Array.of(65_535, 32_768, 0, 16_384))
    expect(plain).toEqual(countsOf(7))
    sample.offer({ id: 'b', counts: countsOf(1) }, 1) // without plain counts: no row has them any more
    expect(sample.snapshot().plain).toBeUndefined()
  })

  it('starts again with requests of another model', () => {
    const sample = sampleOf(4)
    sample.offer({ id: 'a', counts: countsOf(1) }, 0)
    sample.offer({ id: 'b', counts: new Uint16Array(8).fill(3) }, 1)
    expect(sample.snapshot()).toMatchObject({ rows: 1, cells: 8 })
  })

  it('knows a retry by its id and counts, since clients may send one id with every request', () => {
    const sample = sampleOf(2)
    sample.offer({ id: 'a', counts: countsOf(1) }, 0)
    expect(sample.has({ id: 'a', counts: countsOf(1) })).toBe(true)
    expect(sample.has({ id: 'a', counts: countsOf(2) })).toBe(false)
    expect(sample.has({ id: 'b', counts: countsOf(1) })).toBe(false)
    expect(sample.has({ id: 'a', counts: new Uint16Array(8) })).toBe(false)
    const recent = Float32Array.of(0.5, 0.25, 0, 0.125)
    sample.offer({ id: 'recent', counts: recent }, 1)
    expect(sample.has({ id: 'recent', counts: recent })).toBe(true)
    // The later of two requests with one id keeps it when the earlier one leaves.
    const same = sampleOf(2)
    same.offer({ id: 'a', counts: countsOf(1) }, 0)
    same.offer({ id: 'a', counts: countsOf(2) }, 1_000_000_000)
    same.offer({ id: 'b', counts: countsOf(3) }, 1_000_000_001)
    expect(same.has({ id: 'a', counts: countsOf(2) })).toBe(true)
  })
})
