import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { prefillLeastLoaded } from './prefill-least-loaded.ts'
import { prefixHash } from './prefill-prefix-hash.ts'
import { prefillRoundRobin } from './prefill-round-robin.ts'

const ctx = { random: createRandom(1).uniform }
const idle = (workers: number) => Array.from({ length: workers }, (_, worker) => ({ worker, inflight: 0 }))

describe('prefix_hash', () => {
  it('sends prompts with the same prefix to one worker, and all prompts evenly to all workers', () => {
    const policy = prefixHash()
    const counts = [0, 0, 0, 0]
    for (let key = 0; key < 4000; key++) {
      const { worker, reason } = policy.pick({ prefixKey: key }, idle(4), ctx)
      expect(policy.pick({ prefixKey: key }, idle(4), ctx).worker).toBe(worker)
      expect(reason).toBe('prefix')
      counts[worker]!++
    }
    for (const count of counts) expect(Math.abs(count - 1000)).toBeLessThan(120)
  })

  it('moves only the prefixes of a worker that leaves', () => {
    const policy = prefixHash()
    for (let key = 0; key < 500; key++) {
      const { worker } = policy.pick({ prefixKey: key }, idle(4), ctx)
      const after = policy.pick(
        { prefixKey: key },
        idle(4).filter(candidate => candidate.worker !== 3),
        ctx,
      ).worker
      expect(worker === 3 || after === worker).toBe(true)
    }
  })

  it('picks the least loaded worker instead of one past 1.25 × the average load', () => {
    const policy = prefixHash()
    const home = policy.pick({ prefixKey: 7 }, idle(4), ctx).worker
    const busy = idle(4).map(({ worker }) => ({
      worker,
      inflight: worker === home ? 10 : worker === (home + 1) % 4 ? 1 : 4,
    }))
    expect(policy.pick({ prefixKey: 7 }, busy, ctx)).toEqual({
      worker: (home + 1) % 4,
      reason: 'prefix_overloaded',
    })
    expect(policy.pick({}, busy, ctx)).toEqual({ worker: (home + 1) % 4, reason: 'no_prefix' })
  })
})

describe('the other prefill policies', () => {
  it('pick in turn, or by load', () => {
    const policy = prefillRoundRobin()
    const order = [0, 1, 2, 3].map(() => {
      const { worker } = policy.pick({}, idle(3), ctx)
      policy.dispatched!(worker)
      return worker
    })
    expect(order).toEqual([0, 1, 2, 0])
    expect(
      prefillLeastLoaded().pick(
        {},
        [
          { worker: 0, inflight: 2 },
          { worker: 1, inflight: 1 },
        ],
        ctx,
      ).worker,
    ).toBe(1)
  })
})
