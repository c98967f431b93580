import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { anticipating, createUnseen } from './anticipate.ts'
import { createDecodePolicy } from './create-policy.ts'
import type { Candidate, DecodePolicy } from './decode-policy.ts'
import { jsq } from './jsq.ts'
import { loadsOf } from './load.ts'

const cluster = (...inflight: number[]) => inflight.map((n, worker) => ({ worker, inflight: n }))
const ctx = () => ({ random: createRandom(1).uniform })

function unseenWith({ others = 3, ageMs = 100 } = {}) {
  const world = { nowMs: 1000, ageMs, others }
  const unseen = createUnseen({
    viewAgeMs: () => world.ageMs,
    perOwn: () => world.others,
    nowMs: () => world.nowMs,
  })
  return { world, unseen }
}

describe('the estimate of unseen requests', () => {
  it('counts, for each other gateway, the requests this gateway has sent since the view was taken', () => {
    const { world, unseen } = unseenWith()
    unseen.sent(2)
    world.nowMs = 1060
    unseen.sent(2)
    unseen.sent(0)
    expect([0, 1, 2].map(unseen.on)).toEqual([3, 0, 6])
    world.nowMs = 1099.9
    expect([0, 1, 2].map(unseen.on)).toEqual([3, 0, 6])
    world.nowMs = 1100
    expect([0, 1, 2].map(unseen.on)).toEqual([3, 0, 3])
    world.nowMs = 1160
    expect([0, 1, 2].map(unseen.on)).toEqual([0, 0, 0])
  })

  it('follows the current age of the view and the current number of gateways', () => {
    const { world, unseen } = unseenWith()
    unseen.sent(1)
    world.others = 1.5
    expect(unseen.on(1)).toBe(1.5)
    world.nowMs = 1020
    world.ageMs = 20
    expect(unseen.on(1)).toBe(0)
  })

  it('is zero for exact views, even at the same moment', () => {
    const { unseen } = unseenWith({ ageMs: 0 })
    unseen.sent(1)
    expect(unseen.on(1)).toBe(0)
  })

  it('is right after more requests than it keeps at once', () => {
    const { world, unseen } = unseenWith({ others: 1, ageMs: 10 })
    for (let n = 0; n < 5_000; n++) {
      world.nowMs = 1000 + n
      unseen.sent(n % 4)
    }
    expect([0, 1, 2, 3].map(unseen.on)).toEqual([2, 2, 3, 3]) // of the last ten
  })
})

describe('an anticipating policy', () => {
  it('sees loads with the estimate added, and leaves its candidates unchanged', () => {
    const candidates = cluster(3, 4, 6)
    const seen: Candidate[][] = []
    const spy = {
      ...jsq(),
      pick: (...[, given]: Parameters<ReturnType<typeof jsq>['pick']>) => (
        seen.push([...given]),
        { worker: 0, reason: 'random' as const }
      ),
    }
    anticipating(spy, worker => (worker === 0 ? 2.5 : 0)).pick({ id: 'a' }, candidates, ctx())
    expect(seen).toEqual([cluster(5.5, 4, 6)])
    expect(candidates).toEqual(cluster(3, 4, 6))
  })

  it('gives unseen requests the mean prompt, so that a worker is not ranked by tokens it only seems to have', () => {
    const candidates = [
      { worker: 0, inflight: 10, tokens: 20_000 },
      { worker: 1, inflight: 15, tokens: 15_000 },
      { worker: 2, inflight: 10, tokens: 10_000 },
    ]
    const ranked: number[][] = []
    const byLoad: DecodePolicy = {
      ...jsq(),
      pick(_, given) {
        const loads = loadsOf(given)
        ranked.push(given.map(({ worker }) => worker).toSorted((a, b) => loads[a]! - loads[b]!))
        return { worker: ranked.at(-1)![0]!, reason: 'random' }
      },
    }
    const pick = (list: readonly Candidate[], unseen: (worker: number) => number) =>
      anticipating(byLoad, unseen).pick({ id: 'a' }, list, ctx())
    const elsewhere = (worker: number) => (worker === 2 ? 30 : 0)
    pick(candidates, elsewhere)
    // The same cluster once the view has caught up: 30 requests of the mean length on worker 2.
    const caughtUp = { worker: 2, inflight: 40, tokens: 10_000 + (30 * 45_000) / 35 }
    pick([candidates[0]!, candidates[1]!, caughtUp], () => 0)
    expect(ranked).toEqual([
      [0, 1, 2],
      [0, 1, 2],
    ])
  })

  it('gives an idle worker the tokens of its unseen requests, and none where tokens are unknown', () => {
    const seen: Candidate[] = []
    const spy: DecodePolicy = {
      ...jsq(),
      pick: (_, given) => (seen.push(...given), { worker: 0, reason: 'random' }),
    }
    const candidates = [
      { worker: 0, inflight: 2, tokens: 600 },
      { worker: 1, inflight: 0, tokens: 0 },
      { worker: 2, inflight: 5 },
    ]
    anticipating(spy, worker => worker).pick({ id: 'a' }, candidates, ctx())
    expect(seen).toEqual([
      { worker: 0, inflight: 2, tokens: 600 },
      { worker: 1, inflight: 1, tokens: 300 },
      { worker: 2, inflight: 7 },
    ])
    seen.length = 0
    anticipating(spy, () => 2).pick({ id: 'a' }, [{ worker: 0, inflight: 0, tokens: 0 }], ctx())
    expect(seen).toEqual([{ worker: 0, inflight: 2, tokens: 0 }])
  })

  it('does not follow the other gateways to a worker, and returns there once it has heard of their requests', () => {
    const { world, unseen } = unseenWith()
    const policy = createDecodePolicy('jsq', { workers: 3, unseen: unseen.on })!
    expect(policy.pick({ id: 'a' }, cluster(1, 3, 6), ctx()).worker).toBe(0)
    unseen.sent(0)
    expect(policy.pick({ id: 'b' }, cluster(2, 3, 6), ctx()).worker).toBe(1)
    world.nowMs += 100
    expect(policy.pick({ id: 'c' }, cluster(2, 3, 6), ctx()).worker).toBe(0)
  })

  it('passes dispatches and releases on', () => {
    const policy = createDecodePolicy('union', {
      workers: 2,
      shape: { layers: 1, experts: 4, topK: 2 },
      unseen: () => 0,
    })!
    const request = { id: 'a', counts: Uint16Array.of(4, 4, 0, 0) }
    policy.dispatched!(request, 1)
    expect(policy.expectedExperts!(1)![0]).toBeGreaterThan(0.5)
    policy.released!(request, 1)
    expect(policy.expectedExperts!(1)![0]).toBe(0)
  })
})
