import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { createPredictor } from './predictor.ts'
import { createUnionState, logsOf, MAX_CHANCE } from './union-state.ts'
import { DEFAULT_COST, union } from './union.ts'

const CELLS = 12
const chances = fc
  .array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: CELLS, maxLength: CELLS })
  .map(list => Float32Array.from(list))

describe('the union of a worker’s requests', () => {
  it('is 1 − Π (1 − p) for each cell, and the growth is Σ p · Π (1 − p)', () => {
    fc.assert(
      fc.property(fc.array(chances, { maxLength: 6 }), chances, (requests, next) => {
        const state = createUnionState(2, CELLS)
        for (const request of requests) state.add(1, logsOf(request), 1)
        const idle = Array.from({ length: CELLS }, (_, c) =>
          requests.reduce((product, p) => product * (1 - Math.min(MAX_CHANCE, p[c]!)), 1),
        )
        expect(state.unionOf(1)).toBeCloseTo(
          idle.reduce((sum, x) => sum + 1 - x, 0),
          2,
        )
        const growth = new Float32Array(2)
        state.growth(next, growth)
        expect(growth[1]).toBeCloseTo(
          idle.reduce((sum, x, c) => sum + x * next[c]!, 0),
          2,
        )
        expect(growth[0]).toBeCloseTo(
          next.reduce((a, b) => a + b, 0),
          4,
        )
        expect(state.unionOf(0)).toBe(0)
      }),
    )
  })

  it('returns to its exact initial state after any schedule of arrivals and departures', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(chances, fc.integer({ min: 0, max: 2 })), { maxLength: 20 }),
        fc.nat(),
        (requests, seed) => {
          const random = createRandom(seed)
          const state = createUnionState(3, CELLS)
          const waiting = requests.map(([p, worker]) => ({ logs: logsOf(p), worker }))
          const running: typeof waiting = []
          while (waiting.length + running.length > 0) {
            const arrives = running.length === 0 || (waiting.length > 0 && random.uniform() < 0.5)
            const [next] = arrives ? waiting.splice(0, 1) : running.splice(random.below(running.length), 1)
            state.add(next!.worker, next!.logs, arrives ? 1 : -1)
            if (arrives) running.push(next!)
          }
          for (let w = 0; w < 3; w++) {
            expect(state.sums(w).every(sum => sum === 0)).toBe(true)
            expect(state.unionOf(w)).toBe(0)
          }
        },
      ),
    )
  })

  it('counts a request once however often it is dispatched or released', () => {
    const policy = union({
      workers: 1,
      layers: 1,
      predictor: createPredictor({ layers: 1, experts: 2, topK: 1 }),
      cost: DEFAULT_COST,
    })
    const request = { id: 'a', counts: Uint16Array.from([3, 1]) }
    const price = () => policy.pick(request, [{ worker: 0, inflight: 0 }], { random: () => 0 })
    const before = price()
    policy.dispatched!(request, 0)
    policy.dispatched!(request, 0)
    policy.released!(request, 0)
    policy.released!(request, 0)
    expect(price()).toEqual(before)
  })

  it('holds more requests on one cell than the type of one request has bits for', () => {
    const state = createUnionState(1, 1)
    const certain = logsOf(Float32Array.from([1]))
    for (let n = 0; n < 5000; n++) state.add(0, certain, 1)
    expect(state.unionOf(0)).toBe(1)
    for (let n = 0; n < 5000; n++) state.add(0, certain, -1)
    expect(state.sums(0)[0]).toBe(0)
  })
})
