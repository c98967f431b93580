import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { golden } from '../../test/golden.ts'
import { assignBySlots } from '../../test/oracles/hungarian.ts'
import { assignBalanced } from './balanced-assignment.ts'

const total = (costs: ArrayLike<number>, sinks: number, sinkOf: ArrayLike<number>) =>
  Array.from(sinkOf).reduce((sum, sink, point) => sum + costs[point * sinks + sink]!, 0)
const largest = (sinkOf: ArrayLike<number>, sinks: number) =>
  Math.max(...Array.from({ length: sinks }, (_, sink) => Array.from(sinkOf).filter(s => s === sink).length))

/** Continuous costs, few integers (ties), equal rows and duplicated points. */
const problems = fc
  .record({
    points: fc.integer({ min: 1, max: 24 }),
    sinks: fc.integer({ min: 1, max: 8 }),
    slack: fc.integer({ min: 0, max: 2 }),
    kind: fc.constantFrom('real', 'integer', 'equal rows', 'duplicates'),
    seed: fc.infiniteStream(fc.double({ min: -1, max: 1, noNaN: true })),
  })
  .map(({ points, sinks, slack, kind, seed }) => {
    const value = () =>
      kind === 'integer' ? Math.round(3 * (seed.next().value as number)) : (seed.next().value as number)
    const rows = Array.from({ length: points }, () => Array.from({ length: sinks }, value))
    const costs = rows.flatMap(
      (row, p) => (kind === 'equal rows' ? rows[0]! : kind === 'duplicates' ? rows[p % 3]! : row) ?? row,
    )
    return { points, sinks, capacity: Math.ceil(points / sinks) + slack, costs: Float64Array.from(costs) }
  })

describe('balanced assignment', () => {
  it.each(golden.assignment)(
    'matches the cost of SciPy’s optimum: $name',
    ({ points, clusters, capacity, costs, total: optimum }) => {
      const sinkOf = assignBalanced({ costs: Float64Array.from(costs), points, sinks: clusters, capacity })
      expect(total(costs, clusters, sinkOf)).toBeCloseTo(optimum, 9)
      expect(largest(sinkOf, clusters)).toBeLessThanOrEqual(capacity)
    },
  )

  it('matches the cost of the slot-expanded Hungarian method, from any starting prices', () => {
    const prices = fc.array(fc.double({ min: -2, max: 2, noNaN: true }), { minLength: 8, maxLength: 8 })
    fc.assert(
      fc.property(problems, prices, (problem, start) => {
        const { costs, points, sinks, capacity } = problem
        const optimum = total(costs, sinks, assignBySlots(costs, points, sinks, capacity))
        for (const from of [new Float64Array(sinks), Float64Array.from(start.slice(0, sinks))]) {
          const sinkOf = assignBalanced(problem, from)
          expect(sinkOf.length).toBe(points)
          expect(largest(sinkOf, sinks)).toBeLessThanOrEqual(capacity)
          expect(total(costs, sinks, sinkOf)).toBeCloseTo(optimum, 9)
        }
      }),
      { numRuns: 400 },
    )
  })

  it('ends with prices at which no point prefers another sink', () => {
    fc.assert(
      fc.property(problems, problem => {
        const { costs, points, sinks } = problem
        const prices = new Float64Array(sinks)
        const sinkOf = assignBalanced(problem, prices)
        for (let p = 0; p < points; p++) {
          const pays = (sink: number) => costs[p * sinks + sink]! + prices[sink]!
          for (let sink = 0; sink < sinks; sink++)
            expect(pays(sinkOf[p]!)).toBeLessThanOrEqual(pays(sink) + 1e-9)
        }
      }),
    )
  })

  it('rejects more points than fit', () => {
    expect(() => assignBalanced({ costs: new Float64Array(6), points: 3, sinks: 2, capacity: 1 })).toThrow(
      '3 points do not fit into 2 sinks of 1',
    )
  })
})
