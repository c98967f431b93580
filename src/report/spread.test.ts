import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { spread } from './spread.ts'

const box = { left: 0, right: 400, top: 0, bottom: 400 }

describe('spread', () => {
  it('does not move labels that do not overlap', () => {
    const places = [
      { x: 10, y: 10 },
      { x: 60, y: 10 },
    ]
    expect(spread(places, 20, box)).toEqual(places)
  })

  it('separates labels at the same place', () => {
    const moved = spread(
      Array.from({ length: 16 }, () => ({ x: 200, y: 200 })),
      18,
      box,
    )
    for (const [i, a] of moved.entries()) {
      for (const b of moved.slice(i + 1)) expect(Math.hypot(a.x - b.x, a.y - b.y)).toBeGreaterThan(17)
    }
  })

  it('stays inside the box', () => {
    const place = fc.record({ x: fc.integer({ min: 0, max: 400 }), y: fc.integer({ min: 0, max: 400 }) })
    fc.assert(
      fc.property(fc.array(place, { maxLength: 64 }), places => {
        for (const { x, y } of spread(places, 18, box)) {
          expect(x).toBeGreaterThanOrEqual(0)
          expect(x).toBeLessThanOrEqual(400)
          expect(y).toBeGreaterThanOrEqual(0)
          expect(y).toBeLessThanOrEqual(400)
        }
      }),
      { numRuns: 30 },
    )
  })
})
