import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { createRowDraw } from './row-draw.ts'

describe('drawing rows in shuffled passes', () => {
  it('draws each row once before any repeats, while a quarter of the rows is free', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 60 }),
        fc.double({ min: 0, max: 0.74, noNaN: true }),
        fc.nat(),
        (rows, share, seed) => {
          const draw = createRowDraw('passes', rows, createRandom(seed))
          const inflight: number[] = []
          for (let pass = 0; pass < 4; pass++) {
            const taken = Array.from({ length: rows }, () => {
              const row = draw.take()
              if (inflight.push(row) > share * rows) draw.release(inflight.shift()!)
              return row
            })
            expect(new Set(taken).size).toBe(rows)
          }
        },
      ),
    )
  })

  it('never draws a row in flight while another is free', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 40 }),
        fc.integer({ min: 1, max: 50 }),
        fc.nat(),
        (rows, most, seed) => {
          const random = createRandom(seed)
          const draw = createRowDraw('passes', rows, random.fork(1))
          const inflight: number[] = []
          for (let i = 0; i < 20 * rows; i++) {
            if (inflight.length === most) draw.release(inflight.splice(random.below(most), 1)[0]!)
            const row = draw.take()
            expect(inflight.includes(row) && new Set(inflight).size < rows).toBe(false)
            inflight.push(row)
          }
        },
      ),
    )
  })

  it('gives runs whose requests end at different times the same rows, while a quarter of the rows is free', () => {
    const order = (hold: number) => {
      const draw = createRowDraw('passes', 400, createRandom(5))
      const taken: number[] = []
      for (let i = 0; i < 4_000; i++) {
        taken.push(draw.take())
        if (i >= hold) draw.release(taken[i - hold]!)
      }
      return taken
    }
    expect(order(100)).toEqual(order(290))
  })

  it('continues in passes if all rows are in flight', () => {
    const draw = createRowDraw('passes', 10, createRandom(5))
    const taken = new Int32Array(10)
    for (let i = 0; i < 100; i++) taken[draw.take()]!++
    expect(Array.from(taken)).toEqual(Array.from({ length: 10 }, () => 10))
  })

  it('shuffles again in every pass', () => {
    const draw = createRowDraw('passes', 100, createRandom(3))
    const pass = () => Array.from({ length: 100 }, () => draw.take())
    const [first, second] = [pass(), pass()]
    expect(first).not.toEqual(second)
  })
})

describe('drawing rows in other ways', () => {
  it('draws with replacement: every row alike, whatever is in flight', () => {
    const draw = createRowDraw('replacement', 10, createRandom(1))
    const taken = new Int32Array(10)
    for (let i = 0; i < 20_000; i++) taken[draw.take()]!++
    for (const count of taken) expect(Math.abs(count / 2_000 - 1)).toBeLessThan(0.1)
  })

  it('takes the given rows, starting over after the last', () => {
    const draw = createRowDraw(Int32Array.of(4, 4, 1), 10, createRandom(1))
    expect([draw.take(), draw.take(), draw.take(), draw.take()]).toEqual([4, 4, 1, 4])
  })
})
