import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Answer, type Axis, type Edge, inRounds, rateAxis, searchEdge, workerAxis } from './capacity.ts'

/** Runs one search against a probe; also returns the values it tried. */
function run(axis: Axis, probe: (value: number) => Answer): { edge: Edge; asked: number[] } {
  const search = searchEdge(axis)
  const asked: number[] = []
  let step = search.next()
  while (step.done !== true) {
    asked.push(step.value)
    step = search.next(probe(step.value))
  }
  return { edge: step.value, asked }
}

const holdsIf = (holds: boolean): Answer => (holds ? 'holds' : 'fails')
const rates = fc.record({
  start: fc.double({ min: 0.1, max: 5000, noNaN: true }),
  edge: fc.double({ min: 0.2, max: 4000, noNaN: true }),
})
const range = { lowest: 0.1, highest: 5000 }

describe('the search for the highest rate', () => {
  it('finds the edge of any monotone probe to its tolerance, and tries no value twice', () => {
    fc.assert(
      fc.property(rates, ({ start, edge: limit }) => {
        const { edge, asked } = run(rateAxis({ ...range, start }, 0.01), rate => holdsIf(rate <= limit))
        if (edge.outcome !== 'edge') throw new Error(edge.outcome)
        expect(edge.holds).toBeLessThanOrEqual(limit)
        expect(edge.fails).toBeGreaterThan(limit)
        expect(edge.fails / edge.holds).toBeLessThanOrEqual(1.01)
        expect(new Set(asked).size).toBe(asked.length)
        expect(asked.every(rate => rate >= range.lowest && rate <= range.highest)).toBe(true)
      }),
    )
  })

  it('tries about nine values from a start within a factor of two', () => {
    for (const limit of [260, 333, 512, 640]) {
      expect(
        run(rateAxis({ ...range, start: 330 }, 0.01), rate => holdsIf(rate <= limit)).asked.length,
      ).toBeLessThanOrEqual(9)
    }
  })

  it('of a noisy probe gives a rate that held, within the width of the noise', () => {
    fc.assert(
      fc.property(
        rates,
        fc.infiniteStream(fc.double({ min: -0.03, max: 0.03, noNaN: true })),
        ({ start, edge: limit }, noise) => {
          const held = new Set<number>()
          const { edge } = run(rateAxis({ ...range, start }, 0.01), rate => {
            const holds = rate * (1 + noise.next().value!) <= limit
            if (holds) held.add(rate)
            return holdsIf(holds)
          })
          if (edge.outcome !== 'edge') throw new Error(edge.outcome)
          expect(held).toContain(edge.holds)
          expect(edge.holds / limit).toBeGreaterThan(0.95)
          expect(edge.holds / limit).toBeLessThan(1.04)
        },
      ),
    )
  })

  it('reports that every rate holds, or that none does', () => {
    const axis = rateAxis({ ...range, start: 333 }, 0.01)
    expect(run(axis, () => 'holds').edge).toEqual({ outcome: 'always', holds: 5000 })
    expect(run(axis, () => 'fails').edge).toEqual({ outcome: 'never', fails: 0.1 })
    expect(run(rateAxis({ ...range, start: 1e9 }, 0.01), () => 'holds').asked).toEqual([5000])
  })
})

describe('the search for the fewest workers', () => {
  it('ends with a number that holds and whose lower neighbour failed, wherever it starts', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 256 }), (start, limit) => {
        const { edge, asked } = run(workerAxis(start, 256), workers => holdsIf(workers >= limit))
        const found: Edge =
          limit === 1 ? { outcome: 'always', holds: 1 } : { outcome: 'edge', holds: limit, fails: limit - 1 }
        expect(edge).toEqual(found)
        expect(asked).toContain(Math.max(1, limit - 1))
        expect(new Set(asked).size).toBe(asked.length)
      }),
    )
  })

  it('tries two values if the start is right, and none after hearing that no number of workers would help', () => {
    expect(run(workerAxis(12, 256), workers => holdsIf(workers >= 12)).asked).toEqual([12, 11])
    expect(run(workerAxis(12, 256), () => 'hopeless')).toEqual({
      edge: { outcome: 'never', fails: 12 },
      asked: [12],
    })
    expect(run(workerAxis(12, 20), () => 'fails')).toEqual({
      edge: { outcome: 'never', fails: 20 },
      asked: [12, 13, 15, 19, 20],
    })
  })
})

describe('several searches', () => {
  it('are probed together, one list per round, and give what each would give alone', async () => {
    const limits = [3, 90, 2000]
    const axes = limits.map(() => rateAxis({ ...range, start: 100 }, 0.01))
    const rounds: number[] = []
    const edges = await inRounds(axes.map(searchEdge), async asked => {
      rounds.push(asked.length)
      return asked.map(({ search, value }) => holdsIf(value <= limits[search]!))
    })
    const alone = limits.map((limit, at) => run(axes[at]!, value => holdsIf(value <= limit)))
    expect(edges).toEqual(alone.map(({ edge }) => edge))
    expect(rounds[0]).toBe(3)
    expect(rounds.length).toBe(Math.max(...alone.map(({ asked }) => asked.length)))
  })

  it('pass on errors of their probe', async () => {
    const probe = () => Promise.reject(new Error('no pool'))
    await expect(inRounds([searchEdge(workerAxis(4, 8))], probe)).rejects.toThrow('no pool')
  })
})
