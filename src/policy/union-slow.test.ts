import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import type { RoutableRequest } from './decode-policy.ts'
import { createPredictor } from './predictor.ts'
import type { UnionCost } from './step-cost.ts'
import { union } from './union.ts'

const COST: UnionCost = { base: 4000, perExpert: 100, perRequest: 60 }
const SLOWER: UnionCost = { base: 6000, perExpert: 150, perRequest: 90 }
const shape = { layers: 2, experts: 32, topK: 4 }
/** Requests on a worker, on average. */
const LOAD = 20

/** Mean load of each worker over the mean of all, the first ones of which are slow. */
function loadsWith(workers: number, slow: number): number[] {
  const policy = union({
    workers,
    layers: shape.layers,
    predictor: createPredictor(shape),
    cost: { of: worker => (worker >= 0 && worker < slow ? SLOWER : COST) },
  })
  const random = createRandom(7)
  const candidates = Array.from({ length: workers }, (_, worker) => ({ worker, inflight: 0 }))
  const running: { readonly request: RoutableRequest; readonly worker: number }[] = []
  const sums = candidates.map(() => 0)
  for (let n = 0; n < 300 * workers; n++) {
    const counts = Uint16Array.from({ length: shape.layers * shape.experts }, () => random.below(9))
    const request = { id: String(n), counts }
    const { worker } = policy.pick(request, candidates, { random: random.uniform })
    policy.dispatched!(request, worker)
    candidates[worker]!.inflight++
    running.push({ request, worker })
    if (n >= 100 * workers) for (const one of candidates) sums[one.worker]! += one.inflight
    if (running.length <= LOAD * workers) continue
    const [ended] = running.splice(random.below(running.length), 1)
    policy.released!(ended!.request, ended!.worker)
    candidates[ended!.worker]!.inflight--
  }
  const mean = sums.reduce((sum, one) => sum + one, 0) / workers
  return sums.map(sum => sum / mean)
}
const meanOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length

describe('union with slow workers', () => {
  it.each([
    [4, 1],
    [16, 4],
  ])('of %i workers limits what the others take from %i slow', (workers, slow) => {
    const others = loadsWith(workers, slow).slice(slow)
    expect(meanOf(others)).toBeGreaterThan(1.03)
    expect(meanOf(others)).toBeLessThan(1.08)
  })

  it('takes nothing from slow workers if they are half of all', () => {
    expect(loadsWith(2, 1)[0]).toBeCloseTo(1, 1)
  })

  it('takes much of its load from one of 16', () => {
    const [slow] = loadsWith(16, 1)
    expect(slow).toBeLessThan(0.7)
    expect(slow).toBeGreaterThan(0)
  })
})
