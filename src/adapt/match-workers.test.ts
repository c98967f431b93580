import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { matchWorkers, movedHomes } from './match-workers.ts'

const NONE = { cluster: [], worker: [] }
const never = () => false

/** All orders of 0 … n − 1. */
function orders(n: number): number[][] {
  if (n === 0) return [[]]
  return orders(n - 1).flatMap(order =>
    Array.from({ length: n }, (_, at) => [...order.slice(0, at), n - 1, ...order.slice(at)]),
  )
}

describe('matching clusters to workers', () => {
  it('moves no more requests in flight than the best of all assignments', () => {
    for (let seed = 0; seed < 50; seed++) {
      const random = createRandom(seed)
      const workers = 2 + random.below(4)
      const draw = () => Array.from({ length: 40 }, () => random.below(workers))
      const inflight = { cluster: draw(), worker: draw() }
      const matched = matchWorkers(workers, inflight, NONE, never)
      const least = Math.min(...orders(workers).map(order => movedHomes(inflight, order)))
      expect(movedHomes(inflight, matched)).toBe(least)
      expect([...matched].toSorted()).toEqual(Array.from({ length: workers }, (_, worker) => worker))
    }
  })

  it('asks the sample where requests in flight do not tell', () => {
    const sampled = { cluster: [0, 0, 1, 1, 2], worker: [1, 1, 2, 2, 0] }
    expect([...matchWorkers(3, NONE, sampled, never)]).toEqual([1, 2, 0])
    // One request in flight outweighs the whole sample.
    expect(matchWorkers(3, { cluster: [0], worker: [0] }, sampled, never)[0]).toBe(0)
  })

  it('leaves a worker with a fixed cluster the region that it shares most requests with', () => {
    const inflight = { cluster: [0, 0, 0, 1], worker: [1, 1, 1, 0] }
    const sampled = { cluster: [0], worker: [0] }
    expect([...matchWorkers(2, inflight, sampled, never)]).toEqual([1, 0])
    expect([...matchWorkers(2, inflight, sampled, worker => worker === 0)]).toEqual([1, 0])
    const disputed = { cluster: [0, 0, 0, 0, 1], worker: [1, 1, 0, 1, 1] }
    expect([...matchWorkers(2, disputed, NONE, worker => worker === 0)]).toEqual([0, 1])
  })
})
