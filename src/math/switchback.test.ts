import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRandom } from './random.ts'
import { Reservoir } from './reservoir.ts'
import { slotOrder, SlotRecord } from './switchback.ts'

describe('a reservoir', () => {
  it('has exact quantiles, interpolated, until it is full', () => {
    const reservoir = new Reservoir(100)
    for (const value of [4, 1, 3, 2]) reservoir.add(value)
    expect(reservoir.quantiles([0, 0.5, 0.75, 1])).toEqual([1, 2.5, 3.25, 4])
    expect(new Reservoir(1).quantiles([0.5])).toEqual([NaN])
  })

  it('keeps a uniform sample of everything beyond that', () => {
    const reservoir = new Reservoir(2_000, createRandom(3).uniform)
    for (let value = 0; value < 100_000; value++) reservoir.add(value)
    expect(reservoir.count).toBe(100_000)
    const [p10, p50, p90] = reservoir.quantiles([0.1, 0.5, 0.9])
    for (const [found, expected] of [
      [p10, 10_000],
      [p50, 50_000],
      [p90, 90_000],
    ])
      expect(Math.abs(found! - expected!)).toBeLessThan(4_000)
  })
})

describe('a slot', () => {
  const stream = (ageMs: number, tpotMs = 10) => ({ ageMs, ttftMs: 50, tpotMs, tokens: 8 })

  it('counts streams that began in it and end after its washout', () => {
    const slot = new SlotRecord(1_000, 300)
    slot.ended(stream(100, 1), 1_200) // washout
    slot.ended(stream(500, 2), 1_400) // began in the slot before
    slot.ended(stream(400, 3), 1_400)
    slot.ended(stream(10, 5), 2_200)
    const figures = slot.figures(2_300)
    expect(figures).toMatchObject({ seconds: 1, streams: 2, tpotMs: { p50: 4 }, ttftMs: { p50: 50 } })
    // All that ended after the washout.
    expect(figures).toMatchObject({ requestsPerSecond: 3, outputTokensPerSecond: 24 })
  })

  it('has no percentiles without streams, and no rate without time', () => {
    const slot = new SlotRecord(0, 1_000)
    slot.ended(stream(10), 500)
    const none = { p50: null, p99: null }
    expect(slot.figures(900)).toEqual({
      seconds: 0,
      streams: 0,
      ttftMs: none,
      tpotMs: none,
      requestsPerSecond: 0,
      outputTokensPerSecond: 0,
    })
  })

  it('counts tokens of a response that was not streamed, which has no times', () => {
    const slot = new SlotRecord(0, 0)
    slot.ended({ ageMs: 5, tokens: 20 }, 1_000)
    expect(slot.figures(2_000)).toMatchObject({
      streams: 0,
      tpotMs: { p50: null },
      outputTokensPerSecond: 10,
    })
  })
})

describe('the order of slots', () => {
  it('has every treatment once per block', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 20 }),
        fc.nat(),
        (k, blocks, seed) => {
          const treatments = Array.from({ length: k }, (_, n) => n)
          const order = slotOrder(treatments, blocks, createRandom(seed))
          expect(order).toHaveLength(k * blocks)
          for (let b = 0; b < blocks; b++)
            expect(order.slice(b * k, (b + 1) * k).toSorted((x, y) => x - y)).toEqual(treatments)
          expect(order).toEqual(slotOrder(treatments, blocks, createRandom(seed)))
        },
      ),
    )
  })

  it('has each treatment first equally often', () => {
    const order = slotOrder(['a', 'b'], 4_000, createRandom(1))
    const first = order.filter((name, at) => at % 2 === 0 && name === 'a').length
    expect(Math.abs(first - 2_000)).toBeLessThan(150)
  })
})
