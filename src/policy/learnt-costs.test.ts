import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { type LearntCosts, learntCosts } from './learnt-costs.ts'
import type { RoutableRequest } from './decode-policy.ts'
import { createPredictor } from './predictor.ts'
import type { ObservedStream, UnionCost } from './step-cost.ts'
import { DEFAULT_COST, union } from './union.ts'

/** Another GPU and model than that of the prior. */
const TRUE_COST: UnionCost = { base: 4000, perExpert: 500, perRequest: 60 }
const WORKERS = 8

interface Feed {
  readonly streams: number
  readonly cost?: UnionCost
  /** How many times slower a worker is (default: 1). */
  readonly slowness?: (worker: number) => number
  /** Changes a time before it is observed. */
  readonly spoil?: (tokenUs: number, worker: number, at: number) => number
  readonly seed?: number
}

/**
 * Streams as a cluster has them: experts grow with the requests, less and less, with differences between
 * workers and over time; times have 5 % of noise.
 */
function feed(learnt: LearntCosts, options: Feed): void {
  const { streams, cost = TRUE_COST, slowness = () => 1, spoil = us => us, seed = 1 } = options
  const random = createRandom(seed)
  for (let at = 0; at < streams; at++) {
    const worker = random.below(WORKERS)
    const requests = 5 + 30 * random.uniform()
    const experts = 100 * (1 - Math.exp(-requests / 15)) * (0.85 + 0.3 * random.uniform())
    const stepUs = slowness(worker) * timeOf(cost, { experts, requests })
    const tokenUs = spoil(stepUs * (1 + 0.1 * (random.uniform() - 0.5)), worker, at)
    learnt.observe(worker, { tokenUs, experts, requests })
  }
}

const timeOf = (
  { base, perExpert, perRequest }: UnionCost,
  { experts, requests }: Omit<ObservedStream, 'tokenUs'>,
) => base + perExpert * experts + perRequest * requests
const usual = { experts: 70, requests: 20 }
const shares = (cost: UnionCost) => {
  const step = timeOf(cost, usual)
  return [
    cost.base / step,
    (cost.perExpert * usual.experts) / step,
    (cost.perRequest * usual.requests) / step,
  ]
}
/** Largest difference between shares of a step. */
const distance = (one: UnionCost, other: UnionCost) =>
  Math.max(...shares(one).map((share, part) => Math.abs(share - shares(other)[part]!)))
const slownessOf = (learnt: LearntCosts, worker: number) =>
  timeOf(learnt.of(worker), usual) / timeOf(learnt.of(WORKERS), usual)
const learntFrom = (options: Feed, prior = DEFAULT_COST) => {
  const learnt = learntCosts(prior)
  feed(learnt, options)
  return learnt
}

describe('learnt costs', () => {
  it('are the prior before the first streams', () => {
    const learnt = learntFrom({ streams: 15 })
    expect(learnt.of(0)).toEqual(DEFAULT_COST)
    expect(learnt.streams(0)).toBe(0)
  })

  it.each([
    ['the built-in prior', DEFAULT_COST],
    ['a prior without a cost per request', { base: 1000, perExpert: 10, perRequest: 0 }],
    ['a prior without a base', { base: 0, perExpert: 10, perRequest: 10 }],
    ['a prior of other proportions', { base: 30_000, perExpert: 50, perRequest: 300 }],
  ])('find the time of a step, and move towards its parts, from %s', (_, prior) => {
    const cost = learntFrom({ streams: 5_000 }, prior).of(0)
    expect(timeOf(cost, usual) / timeOf(TRUE_COST, usual)).toBeCloseTo(1, 1)
    // The prior is strong: see PRIOR_WEIGHT.
    expect(distance(cost, TRUE_COST)).toBeLessThan(0.7 * distance(prior, TRUE_COST))
  })

  it('learn from the built-in prior if the given one is zero', () => {
    const streams = { streams: 500 }
    const learnt = learntFrom(streams, { base: 0, perExpert: 0, perRequest: 0 })
    expect(learnt.of(0)).toEqual(learntFrom(streams, DEFAULT_COST).of(0))
  })

  it('find a slow worker and leave the others alike', () => {
    const learnt = learntFrom({ streams: 3_000, slowness: worker => (worker === 3 ? 1.5 : 1) })
    expect(slownessOf(learnt, 3)).toBeGreaterThan(1.4)
    expect(slownessOf(learnt, 3)).toBeLessThan(1.6)
    for (const worker of [0, 1, 2, 4, 5, 6, 7]) expect(slownessOf(learnt, worker)).toBeCloseTo(1, 1)
    expect(distance(learnt.of(0), TRUE_COST)).toBeLessThan(0.1)
  })

  it('follow a worker that becomes slow, and one that recovers', () => {
    const learnt = learntFrom({ streams: 2_000 })
    feed(learnt, { streams: 1_500, slowness: worker => (worker === 3 ? 1.5 : 1), seed: 2 })
    expect(slownessOf(learnt, 3)).toBeGreaterThan(1.4)
    feed(learnt, { streams: 2_500, seed: 3 })
    expect(slownessOf(learnt, 3)).toBeCloseTo(1, 1)
  })

  it('follow another model on all workers', () => {
    const learnt = learntFrom({ streams: 5_000 })
    const other = { base: 9000, perExpert: 60, perRequest: 20 }
    feed(learnt, { streams: 10_000, cost: other, seed: 2 })
    expect(timeOf(learnt.of(0), usual) / timeOf(other, usual)).toBeCloseTo(1, 1)
    expect(distance(learnt.of(0), other)).toBeLessThan(0.4 * distance(DEFAULT_COST, other))
  })

  it.each([
    ['slower', 5],
    ['faster', 0.2],
  ])('follow all workers that become 5 times %s, and still know the slow one', (_, factor) => {
    const slowness = (worker: number) => (worker === 3 ? 1.5 : 1)
    const learnt = learntFrom({ streams: 5_000 })
    feed(learnt, { streams: 400, slowness: worker => factor * slowness(worker), seed: 2 })
    expect(timeOf(learnt.of(WORKERS), usual) / timeOf(TRUE_COST, usual) / factor).toBeCloseTo(1, 1)
    feed(learnt, { streams: 800, slowness: worker => factor * slowness(worker), seed: 3 })
    expect(slownessOf(learnt, 3)).toBeGreaterThan(1.4)
    expect(slownessOf(learnt, 3)).toBeLessThan(1.6)
    for (const worker of [0, 1, 2, 4, 5, 6, 7]) expect(slownessOf(learnt, worker)).toBeCloseTo(1, 1)
  })

  it('follow levels that change again and again, and stay finite', () => {
    // Shortly after each other, so that few residuals are known of a level when the next one comes.
    for (let seed = 0; seed < 40; seed++) {
      const learnt = learntFrom({ streams: 500 + seed })
      for (const [at, factor] of [2, 4, 8, 3, 1].entries())
        feed(learnt, { streams: 40 + 3 * seed, slowness: () => factor, seed: 100 * seed + at })
      feed(learnt, { streams: 600, seed })
      for (let worker = 0; worker < WORKERS; worker++)
        expect(timeOf(learnt.of(worker), usual) / timeOf(TRUE_COST, usual)).toBeCloseTo(1, 0)
    }
  })

  it('keep their level if fewer than most workers change, however many streams these have', () => {
    const learnt = learntFrom({ streams: 2_000 })
    const before = timeOf(learnt.of(WORKERS), usual)
    const random = createRandom(5)
    // 4 of 5 streams are on workers 0 to 2, which become 100 times slower.
    for (let at = 0; at < 2_000; at++) {
      const slow = at % 5 > 0
      const own = { ...usual, requests: 10 + 20 * random.uniform() }
      const tokenUs = (slow ? 100 : 1) * timeOf(TRUE_COST, own)
      learnt.observe(slow ? random.below(3) : 3 + random.below(5), { tokenUs, ...own })
    }
    expect(timeOf(learnt.of(4), usual) / before).toBeLessThan(1.5)
  })

  it('are hardly moved by stalled streams', () => {
    const calm = learntFrom({ streams: 3_000 })
    const stalled = learntFrom({ streams: 3_000, spoil: (us, _, at) => (at % 20 === 7 ? 1000 * us : us) })
    expect(timeOf(stalled.of(0), usual) / timeOf(calm.of(0), usual)).toBeCloseTo(1, 1)
    expect(distance(stalled.of(0), calm.of(0))).toBeLessThan(0.05)
  })

  it.each([
    ['1 µs', 1, 0.93],
    ['an hour', 3.6e9, 2],
  ])('of a worker with tokens every %s are within the bound, and spoil no other', (_, us, bound) => {
    const learnt = learntFrom({ streams: 5_000, spoil: (own, worker) => (worker === 2 ? us : own) })
    expect(slownessOf(learnt, 2)).toBeCloseTo(bound, 1)
    expect(timeOf(learnt.of(0), usual) / timeOf(TRUE_COST, usual)).toBeGreaterThan(0.85)
    expect(timeOf(learnt.of(0), usual) / timeOf(TRUE_COST, usual)).toBeLessThan(1.15)
  })

  it('of an unknown worker, or one that was replaced, are those of the cluster', () => {
    const learnt = learntFrom({ streams: 3_000, slowness: worker => (worker === 3 ? 1.5 : 1) })
    const cluster = learnt.of(1_000)
    expect(timeOf(cluster, usual) / timeOf(TRUE_COST, usual)).toBeCloseTo(1, 1)
    learnt.forget(3)
    expect(learnt.of(3)).toEqual(cluster)
    expect(learnt.streams(3)).toBe(0)
  })

  it('of a worker without requests become those of the cluster again', () => {
    const learnt = learntFrom({ streams: 2_000, slowness: worker => (worker === 3 ? 2 : 1) })
    expect(slownessOf(learnt, 3)).toBeGreaterThan(1.5)
    const random = createRandom(9)
    for (let at = 0; at < 64 * WORKERS + 32; at++) {
      const own = { ...usual, requests: 10 + 20 * random.uniform() }
      learnt.observe(at % 3, { tokenUs: timeOf(TRUE_COST, own), ...own })
    }
    expect(slownessOf(learnt, 3)).toBe(1)
  })

  it('ignore times and means that are not positive numbers', () => {
    const learnt = learntFrom({ streams: 100 })
    const before = learnt.of(0)
    for (const wrong of [0, -1, NaN, Infinity]) {
      learnt.observe(0, { tokenUs: wrong, ...usual })
      if (wrong === Infinity) continue
      learnt.observe(0, { tokenUs: 10_000, ...usual, experts: wrong })
      learnt.observe(0, { tokenUs: 10_000, ...usual, requests: wrong })
    }
    expect(learnt.of(0)).toEqual(before)
  })

  it('are the same for the same streams', () => {
    const [one, other] = [learntFrom({ streams: 500 }), learntFrom({ streams: 500 })]
    for (let worker = 0; worker <= WORKERS; worker++) expect(one.of(worker)).toEqual(other.of(worker))
  })

  it('stay within their bounds, whatever is observed', () => {
    const anyStream = fc.record({
      tokenUs: fc.double(),
      experts: fc.double({ min: 1e-3, max: 1e4 }),
      requests: fc.double({ min: 1e-3, max: 1e4 }),
    })
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(3), anyStream), { maxLength: 200 }), streams => {
        const learnt = learntCosts(DEFAULT_COST)
        for (const [worker, stream] of streams) learnt.observe(worker, stream)
        const cluster = learnt.of(9)
        for (let worker = 0; worker < 4; worker++) {
          const cost = learnt.of(worker)
          const slowness = cost.base / cluster.base
          expect(slowness).toBeGreaterThanOrEqual(0.5 - 1e-9)
          expect(slowness).toBeLessThanOrEqual(2 + 1e-9)
          for (const part of [cost.base, cost.perExpert, cost.perRequest]) {
            expect(part).toBeGreaterThan(0)
            expect(part).toBeLessThan(Infinity)
          }
        }
      }),
    )
  })
})

describe('union with learnt costs', () => {
  const shape = { layers: 2, experts: 32, topK: 4 }

  /** Share of each worker in the last half of the requests, with 10 on each worker on average. */
  function sharesWith(tokenUs: (worker: number, inflight: number) => number): number[] {
    const policy = union({
      workers: WORKERS,
      layers: shape.layers,
      predictor: createPredictor(shape),
      cost: learntCosts(DEFAULT_COST),
    })
    const random = createRandom(4)
    const candidates = Array.from({ length: WORKERS }, (_, worker) => ({ worker, inflight: 0 }))
    const running: { readonly request: RoutableRequest; readonly worker: number }[] = []
    const dispatches = Array.from({ length: WORKERS }, () => 0)
    const count = 4_000
    for (let n = 0; n < count; n++) {
      const counts = Uint16Array.from({ length: shape.layers * shape.experts }, () => random.below(9))
      const request = { id: String(n), counts }
      const { worker } = policy.pick(request, candidates, { random: random.uniform })
      policy.dispatched!(request, worker)
      candidates[worker]!.inflight++
      running.push({ request, worker })
      if (n >= count / 2) dispatches[worker]! += 2 / count
      if (running.length <= 10 * WORKERS) continue
      const [ended] = running.splice(random.below(running.length), 1)
      const { inflight } = candidates[ended!.worker]!
      policy.released!(ended!.request, ended!.worker, tokenUs(ended!.worker, inflight))
      candidates[ended!.worker]!.inflight--
    }
    return dispatches
  }
  const honest = (inflight: number) => 5000 + 300 * inflight

  it('sends a slow worker fewer requests', () => {
    const got = sharesWith((worker, inflight) => (worker === 2 ? 1.5 : 1) * honest(inflight))
    expect(got[2]).toBeLessThan(0.8 / WORKERS)
    expect(got[2]).toBeGreaterThan(0)
  })

  it.each([
    ['1 µs', 1],
    ['an hour', 3.6e9],
  ])('neither floods nor starves a worker with tokens every %s', (_, us) => {
    const got = sharesWith((worker, inflight) => (worker === 2 ? us : honest(inflight)))
    expect(got[2]).toBeLessThan(1.4 / WORKERS)
    expect(got[2]).toBeGreaterThan(0)
  })
})
