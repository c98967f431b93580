import { describe, expect, it } from 'vitest'
import type { RoutableRequest } from './decode-policy.ts'
import { createPredictor } from './predictor.ts'
import { createStepJudge } from './step-judge.ts'
import { DEFAULT_COST } from './union.ts'

const SHAPE = { layers: 2, experts: 4, topK: 1 }
const request = (id: string, ...counts: number[]): RoutableRequest => ({
  id,
  counts: Uint16Array.from(counts),
})
const [left, right] = [
  request('left', 9, 1, 0, 0, 9, 1, 0, 0),
  request('right', 0, 0, 1, 9, 0, 0, 1, 9),
] as const
const candidates = [
  { worker: 0, inflight: 1 },
  { worker: 1, inflight: 1 },
]
const judge = () =>
  createStepJudge({ workers: 2, ...SHAPE, predictor: createPredictor(SHAPE), cost: DEFAULT_COST })

describe('the expected cost of a decision', () => {
  it('is lower, with fewer experts, on a worker that shares the request’s experts', () => {
    const judged = judge()
    judged.dispatched(left, 0)
    judged.dispatched(right, 1)
    const after = judged.after(request('next', 9, 1, 0, 0, 9, 1, 0, 0), candidates)!
    const [shared, apart] = [after(0)!, after(1)!]
    // Two requests that choose one of two experts with 0.9 and 0.1: 1 − 0.1² and 1 − 0.9² expected.
    expect(shared.experts).toBeCloseTo(0.99 + 0.19, 2)
    expect(apart.experts).toBeCloseTo(2, 2)
    const { base, perExpert, perRequest } = DEFAULT_COST
    // The request that is there waits for the added experts too.
    const stepTime = base + perExpert * shared.experts + 2 * perRequest
    expect(shared.cost).toBeCloseTo(stepTime + perExpert * (shared.experts - 1) + perRequest, 0)
    expect(apart.cost).toBeGreaterThan(shared.cost)
  })

  it('forgets a request that is released', () => {
    const judged = judge()
    const alone = judged.after(left, candidates)!(0)!
    judged.dispatched(right, 0)
    expect(judged.after(left, candidates)!(0)!.experts).toBeGreaterThan(alone.experts)
    judged.released(right, 0)
    judged.released(right, 0)
    expect(judged.after(left, candidates)!(0)).toEqual(alone)
  })

  it('is unknown without counts, and for a worker that is no candidate', () => {
    expect(judge().after({ id: 'none' }, candidates)).toBeUndefined()
    expect(judge().after(left, candidates)!(7)).toBeUndefined()
  })
})
