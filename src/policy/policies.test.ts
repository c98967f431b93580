import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { jsq } from './jsq.ts'
import { powerOfTwo } from './power-of-two.ts'
import { random } from './random-pick.ts'
import { roundRobin } from './round-robin.ts'
import {
  type Candidate,
  type DecodePolicy,
  POLICIES,
  REASONS,
  type RoutableRequest,
} from './decode-policy.ts'
import { domain, splitWorkers } from './domain.ts'
import { band } from './band.ts'
import { eldr } from './eldr.ts'
import { loadsOf } from './load.ts'
import { createPredictor, trustIn } from './predictor.ts'
import { DEFAULT_COST, union } from './union.ts'

const LAYERS = 2
const EXPERTS = 4
const cluster = (...inflight: number[]) => inflight.map((n, worker) => ({ worker, inflight: n }))
const ctx = (seed = 1) => ({ random: createRandom(seed).uniform })
const towards = (x: number) => new Float32Array([x, Math.sqrt(1 - x * x)])
const centroids = new Float32Array([1, 0, 0, 1]) // two workers, two dimensions
const shape = { layers: LAYERS, experts: EXPERTS, topK: 2 }
const unionOf = (workers: number) =>
  union({ workers, layers: LAYERS, predictor: createPredictor(shape), cost: DEFAULT_COST })
const request = (...counts: number[]): RoutableRequest => ({ id: 'r', counts: Uint16Array.from(counts) })

/** Every policy, on up to four workers of which the first two have centroids. */
const all = (): DecodePolicy[] => [
  random(),
  roundRobin(),
  jsq(),
  powerOfTwo(),
  domain({ shares: [3, 1], workers: 4 }),
  band({ centroids, dimensions: 2 }),
  eldr({ centroids, dimensions: 2 }),
  unionOf(3),
]

const anyRequest: fc.Arbitrary<RoutableRequest> = fc.record(
  {
    id: fc.string(),
    signature: fc.oneof(
      fc.double({ min: 0, max: 1, noNaN: true }).map(towards),
      fc.constantFrom(new Float32Array(3), new Float32Array([NaN, NaN])),
    ),
    counts: fc.oneof(
      fc
        .array(fc.integer({ min: 0, max: 9 }), { minLength: 8, maxLength: 8 })
        .map(list => Uint16Array.from(list)),
      fc.constantFrom(new Uint16Array(8), new Uint16Array(3), new Float32Array(8).fill(NaN)),
    ),
    domain: fc.integer({ min: -1, max: 5 }),
  },
  { requiredKeys: ['id'] },
)
const anyCandidates: fc.Arbitrary<Candidate[]> = fc.uniqueArray(
  fc.record({ worker: fc.integer({ min: 0, max: 3 }), inflight: fc.integer({ min: 0, max: 5 }) }),
  { minLength: 1, selector: ({ worker }) => worker },
)

describe('every policy', () => {
  it('of the table is tested here', () => {
    expect(all().map(({ name }) => name)).toEqual(POLICIES)
  })

  it('picks one of the candidates, whatever the request lacks and whichever workers are away', () => {
    fc.assert(
      fc.property(anyRequest, anyCandidates, fc.nat(), (odd, candidates, seed) => {
        for (const policy of all()) {
          const { worker, reason } = policy.pick(odd, candidates, ctx(seed))
          expect(REASONS).toContain(reason)
          expect(
            candidates.map(candidate => candidate.worker),
            policy.name,
          ).toContain(worker)
        }
      }),
      { numRuns: 300 },
    )
  })

  it('spreads requests over an idle cluster', () => {
    for (const policy of all()) {
      const context = ctx()
      const picked = new Set<number>()
      for (let n = 0; n < 200; n++) {
        const { worker } = policy.pick({ id: `${n}` }, cluster(0, 0, 0, 0), context)
        policy.dispatched?.({ id: `${n}` }, worker)
        picked.add(worker)
      }
      expect(picked.size, policy.name).toBe(4)
    }
  })
})

describe('load balancers', () => {
  it('jsq picks the shortest queue', () => {
    expect(jsq().pick({ id: 'a' }, cluster(3, 1, 2), ctx())).toEqual({ worker: 1, reason: 'least_loaded' })
  })

  it('round robin continues after the last dispatch and skips workers that are away', () => {
    const policy = roundRobin()
    const order: number[] = []
    for (let n = 0; n < 6; n++) {
      const { worker } = policy.pick(
        { id: 'a' },
        n === 3 ? cluster(0, 0, 0).slice(1) : cluster(0, 0, 0),
        ctx(),
      )
      policy.dispatched!({ id: 'a' }, worker)
      order.push(worker)
    }
    expect(order).toEqual([0, 1, 2, 1, 2, 0])
  })

  it('power of two never picks the more loaded of two workers', () => {
    for (let seed = 0; seed < 50; seed++)
      expect(powerOfTwo().pick({ id: 'a' }, cluster(9, 1), ctx(seed)).worker).toBe(1)
  })
})

describe('domain', () => {
  it('gives every domain a worker and the rest by share', () => {
    expect(splitWorkers([60, 20, 20], 10)).toEqual([0, 0, 0, 0, 0, 0, 1, 1, 2, 2])
    expect(splitWorkers([97, 1, 1, 1], 4)).toEqual([0, 1, 2, 3])
    expect(splitWorkers([9, 1, 1], 2)).toEqual([0, 1])
    expect(splitWorkers([], 4)).toEqual([])
  })

  it('keeps a labelled request on its domain’s workers, by load among them', () => {
    const policy = domain({ shares: [1, 1], workers: 4 })
    expect(policy.pick({ id: 'a', domain: 1 }, cluster(0, 0, 5, 3), ctx())).toEqual({
      worker: 3,
      reason: 'domain',
    })
    expect(policy.pick({ id: 'a' }, cluster(0, 9, 9, 9), ctx())).toEqual({ worker: 0, reason: 'no_domain' })
  })
})

describe('band', () => {
  it('keeps a clear match on its worker, however busy', () => {
    const decision = band({ centroids, dimensions: 2 }).pick(
      { id: 'a', signature: towards(0.99) },
      cluster(50, 0),
      ctx(),
    )
    expect(decision).toMatchObject({ worker: 0, reason: 'band_hit', band: 1 })
    expect(decision.similarities![0]).toBeCloseTo(0.99)
  })

  it('gives an ambiguous request to the less loaded of the workers in the band', () => {
    expect(
      band({ centroids, dimensions: 2 }).pick({ id: 'a', signature: towards(0.71) }, cluster(3, 2), ctx()),
    ).toMatchObject({
      worker: 1,
      reason: 'band_spill',
      band: 2,
    })
  })

  it('breaks ties of load by similarity', () => {
    expect(
      band({ centroids, dimensions: 2, tau: 1 }).pick(
        { id: 'a', signature: towards(0.72) },
        cluster(2, 2),
        ctx(),
      ),
    ).toMatchObject({
      worker: 0,
      reason: 'band_hit',
    })
  })

  it('falls back to load, and says so, if there is no signature or no candidate has a centroid', () => {
    const policy = band({ centroids, dimensions: 2 })
    expect(policy.pick({ id: 'a' }, cluster(3, 2), ctx())).toEqual({ worker: 1, reason: 'no_signature' })
    const away = [
      { worker: 2, inflight: 4 },
      { worker: 3, inflight: 1 },
    ]
    expect(policy.pick({ id: 'a', signature: towards(0.9) }, away, ctx())).toEqual({
      worker: 3,
      reason: 'no_centroid',
    })
    expect(policy.pick({ id: 'a', signature: new Float32Array([NaN, NaN]) }, cluster(3, 2), ctx())).toEqual({
      worker: 1,
      reason: 'no_signature',
    })
  })

  it('lets a worker without a centroid take its share if it is less loaded than those that match', () => {
    const policy = band({ centroids, dimensions: 2 })
    const request = { id: 'a', signature: towards(0.99) }
    expect(policy.pick(request, cluster(3, 0, 2), ctx())).toMatchObject({ worker: 2, reason: 'no_centroid' })
    expect(policy.pick(request, cluster(2, 0, 2), ctx())).toMatchObject({ worker: 0, reason: 'band_hit' })
    const gap = band({ centroids: new Float32Array([1, 0, NaN, NaN]), dimensions: 2 })
    expect(gap.pick(request, cluster(1, 0), ctx())).toMatchObject({ worker: 1, reason: 'no_centroid' })
    expect(gap.pick(request, [{ worker: 1, inflight: 0 }], ctx())).toEqual({
      worker: 1,
      reason: 'no_centroid',
    })
  })

  it('draws among workers with equal load and similarity', () => {
    const policy = band({ centroids: new Float32Array([1, 0, 1, 0, 1, 0]), dimensions: 2 })
    const source = ctx()
    const picks = [0, 0, 0]
    for (let n = 0; n < 900; n++)
      picks[policy.pick({ id: 'a', signature: towards(0.9) }, cluster(1, 1, 1), source).worker]!++
    for (const count of picks) expect(count).toBeGreaterThan(240)
  })
})

describe('eldr', () => {
  const create = (tau?: number) => eldr({ centroids, dimensions: 2, tau })
  const asked = (x: number) => ({ id: 'a', signature: towards(x) })
  /** Dispatches requests evenly spread between both centroids, so that both have the same usual cosine. */
  const settled = (policy: DecodePolicy) => {
    for (let n = 0; n < 400; n++) policy.dispatched!(asked(n % 2 === 0 ? 0.96 : 0.28), 0)
    return policy
  }

  it('keeps a match on its worker while the load is even, and gives it up as the worker gets busier', () => {
    const policy = settled(create())
    const decision = policy.pick(asked(0.96), cluster(10, 10), ctx())
    expect(decision).toMatchObject({ worker: 0, reason: 'match_hit' })
    expect(decision.similarities![0]).toBeCloseTo(0.96)
    expect(decision.band).toBeUndefined()
    expect(policy.pick(asked(0.96), cluster(20, 10), ctx()).worker).toBe(0)
    expect(policy.pick(asked(0.96), cluster(50, 0), ctx())).toMatchObject({
      worker: 1,
      reason: 'match_spill',
    })
  })

  it('follows similarity alone with a τ of 0 and load almost alone with 1', () => {
    expect(settled(create(0)).pick(asked(0.96), cluster(50, 0), ctx()).worker).toBe(0)
    expect(settled(create(1)).pick(asked(0.96), cluster(11, 8), ctx()).worker).toBe(1)
  })

  it('takes τ more similarity for a sixth of the mean load, and for half of that at a mean of 3', () => {
    for (const tau of [0.05, 0.1, 0.2])
      fc.assert(
        fc.property(fc.nat(40), fc.nat(40), fc.double({ min: 0, max: 1, noNaN: true }), (a, b, x) => {
          const [first, second] = towards(x)
          const mean = Math.max(1, (a + b) / 2)
          const better = first! - second! - ((6 * tau * (a - b)) / mean) * (1 + 3 / mean)
          fc.pre(Math.abs(better) > 1e-4)
          expect(create(tau).pick(asked(x), cluster(a, b), ctx()).worker).toBe(better > 0 ? 0 : 1)
        }),
      )
  })

  it('does not send all traffic to the worker that resembles all of it', () => {
    const inflight = [0, 0]
    const [policy, context] = [create(), ctx()]
    // All requests are closer to the first worker, some more and some less.
    for (let n = 0; n < 300; n++) {
      const request = { ...asked(0.9 + 0.09 * context.random()), id: `${n}` }
      const { worker } = policy.pick(request, cluster(...inflight), context)
      policy.dispatched!(request, worker)
      inflight[worker]!++
    }
    expect(inflight[0]! / 300).toBeGreaterThan(0.4)
    expect(inflight[0]! / 300).toBeLessThan(0.6)
    expect(band({ centroids, dimensions: 2 }).pick(asked(0.9), cluster(300, 0), context).worker).toBe(0)
  })

  it('decides the same again if nothing was dispatched, and keeps what it learnt when requests end', () => {
    const policy = create()
    const decide = () => policy.pick(asked(0.8), cluster(1, 1), ctx())
    expect(decide()).toEqual(decide())
    expect(decide().worker).toBe(0)
    for (let n = 0; n < 100; n++) policy.dispatched!(asked(0.95), 0)
    expect(decide().worker).toBe(1) // 0.8 is less than usual for the first worker
    expect([policy.released, policy.ownRequestsOnly]).toEqual([undefined, true])
  })

  it('falls back to load without a usable signature and without centroids, and learns nothing from it', () => {
    const policy = create()
    const odd: RoutableRequest[] = [
      { id: 'a' },
      { id: 'a', signature: new Float32Array(3) },
      { id: 'a', signature: new Float32Array([NaN, NaN]) },
    ]
    for (const request of odd) {
      expect(policy.pick(request, cluster(3, 2), ctx())).toEqual({ worker: 1, reason: 'no_signature' })
      policy.dispatched!(request, 1)
    }
    expect(policy.pick(asked(0.8), cluster(1, 1), ctx()).worker).toBe(0)
    expect(
      policy.pick(
        asked(0.9),
        [
          { worker: 2, inflight: 4 },
          { worker: 3, inflight: 1 },
        ],
        ctx(),
      ),
    ).toEqual({
      worker: 3,
      reason: 'no_centroid',
    })
  })

  it('gives a worker without a centroid neither advantage nor penalty', () => {
    const gap = () => settled(eldr({ centroids: new Float32Array([1, 0, 0, 1, NaN, NaN]), dimensions: 2 }))
    for (const workers of [(list: number[]) => cluster(...list), (list: number[]) => cluster(...list, 99)]) {
      // An average fit is worse than a good one and better than a bad one, at equal load.
      expect(gap().pick(asked(0.96), workers([9, 9, 9]), ctx()).worker).toBe(0)
      expect(gap().pick(asked(0.96), workers([30, 9, 9]).slice(0, 3), ctx())).toMatchObject({
        worker: 2,
        reason: 'no_centroid',
      })
    }
    // At the first request too, when no cosine is usual yet.
    const fresh = create()
    expect(
      fresh.pick(
        asked(0.71),
        [
          { worker: 0, inflight: 5 },
          { worker: 7, inflight: 1 },
        ],
        ctx(),
      ).worker,
    ).toBe(7)
  })

  it('draws among workers with equal load and similarity', () => {
    const policy = eldr({ centroids: new Float32Array([1, 0, 1, 0, 1, 0]), dimensions: 2 })
    const source = ctx()
    const picks = [0, 0, 0]
    for (let n = 0; n < 900; n++) picks[policy.pick(asked(0.9), cluster(1, 1, 1), source).worker]!++
    for (const count of picks) expect(count).toBeGreaterThan(240)
  })
})

describe('loads of candidates', () => {
  const loads = (...list: [inflight: number, tokens?: number][]) =>
    Array.from(loadsOf(list.map(([inflight, tokens], worker) => ({ worker, inflight, tokens }))))

  it('are requests in flight, unless a worker has many more tokens than requests', () => {
    expect(loads([2], [4])).toEqual([2, 4])
    expect(loads([2, 0], [4, 0])).toEqual([2, 4])
    expect(loads([2, 100], [4])).toEqual([2, 4])
    expect(loads([4, 450], [4, 550])).toEqual([4, 4])
    expect(loads([4, 200], [4, 800])).toEqual([4, 4 * 1.28])
  })

  it('leave a worker with one very long prompt a share of the requests, under eldr and union', () => {
    expect(loads([1, 32_000], [20, 10_000], [20, 10_000])).toEqual([4, 20, 20])
    expect(loads([0, 32_000], [20, 10_000])).toEqual([0, 20])
    for (const policy of [eldr({ centroids, dimensions: 2 }), unionOf(2)]) {
      const candidates = [
        { worker: 0, inflight: 1, tokens: 32_000 },
        { worker: 1, inflight: 20, tokens: 10_000 },
      ]
      for (let n = 0; n < 40; n++) {
        const request = {
          id: `r-${n}`,
          signature: towards(Math.SQRT1_2),
          counts: Uint16Array.of(1, 1, 1, 1, 1, 1, 1, 1),
        }
        const { worker } = policy.pick(request, candidates, ctx())
        policy.dispatched?.(request, worker)
        candidates[worker]!.inflight++
        candidates[worker]!.tokens += 500
      }
      expect(candidates[0]!.inflight).toBeGreaterThan(8)
    }
  })

  it('send a request past a worker with long prompts, under eldr and union', () => {
    const long = [
      { worker: 0, inflight: 5, tokens: 9_000 },
      { worker: 1, inflight: 5, tokens: 1_000 },
    ]
    const either = {
      id: 'a',
      signature: towards(Math.SQRT1_2),
      counts: Uint16Array.of(1, 1, 1, 1, 1, 1, 1, 1),
    }
    for (const policy of [eldr({ centroids, dimensions: 2 }), unionOf(2)])
      expect(policy.pick(either, long, ctx()).worker).toBe(1)
  })
})

describe('union', () => {
  it('sends a request to the worker whose requests use its experts', () => {
    const policy = unionOf(2)
    const [code, law] = [request(9, 9, 0, 0, 9, 9, 0, 0), request(0, 0, 9, 9, 0, 0, 9, 9)]
    policy.dispatched!(code, 0)
    policy.dispatched!(law, 1)
    expect(policy.pick(request(5, 4, 0, 0, 5, 4, 0, 0), cluster(1, 1), ctx())).toEqual({
      worker: 0,
      reason: 'least_cost',
    })
    expect(policy.pick(request(0, 1, 7, 7, 0, 0, 8, 6), cluster(1, 1), ctx())).toEqual({
      worker: 1,
      reason: 'least_cost',
    })
  })

  it('picks another worker if the matching one is too busy', () => {
    const policy = unionOf(2)
    policy.dispatched!(request(9, 9, 0, 0, 9, 9, 0, 0), 0)
    expect(policy.pick(request(5, 4, 0, 0, 5, 4, 0, 0), cluster(40, 0), ctx()).worker).toBe(1)
  })

  it('picks the worker with the lowest price by the formula, for any requests in flight', () => {
    const counts = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 8, maxLength: 8 })
    const running = fc.array(fc.tuple(counts, fc.integer({ min: 0, max: 2 })), { maxLength: 30 })
    fc.assert(
      fc.property(running, counts, (there, next) => {
        const policy = unionOf(3)
        const inflight = [0, 0, 0]
        // The chance that no request on a worker fires each cell, from the shares themselves.
        const idle = inflight.map(() => Array.from({ length: LAYERS * EXPERTS }, () => 1))
        const chancesOf = (list: readonly number[]) =>
          list.map((count, at) => {
            const from = Math.floor(at / EXPERTS) * EXPERTS
            return Math.min(0.98, (2 * count) / list.slice(from, from + EXPERTS).reduce((a, b) => a + b))
          })
        for (const [list, worker] of there) {
          policy.dispatched!(request(...list), worker)
          inflight[worker]!++
          chancesOf(list).forEach((p, cell) => (idle[worker]![cell]! *= 1 - p))
        }
        const prices = idle.map((cells, worker) => {
          const [experts, added] = [
            cells.reduce((sum, e) => sum + 1 - e, 0),
            cells.reduce((sum, e, c) => sum + e * chancesOf(next)[c]!, 0),
          ]
          const stepTime = 2688 + 148.8 * (experts / LAYERS) + 25 * inflight[worker]!
          return Math.sqrt(stepTime) * (stepTime + (148.8 * (added / LAYERS) + 25) * (9 + inflight[worker]!))
        })
        const { worker } = policy.pick(request(...next), cluster(...inflight), ctx())
        expect(prices[worker]! / Math.min(...prices)).toBeLessThan(1.002) // chances are read in 4,096ths
      }),
    )
  })

  it('prices an unknown worker as one that shares nothing with the request', () => {
    const policy = unionOf(1)
    for (let n = 0; n < 30; n++) policy.dispatched!(request(9, 9, 0, 0, 9, 9, 0, 0), 0)
    expect(policy.pick(request(0, 0, 9, 9, 0, 0, 9, 9), cluster(30, 0), ctx())).toEqual({
      worker: 1,
      reason: 'least_cost',
    })
    expect(policy.pick(request(0, 0, 9, 9, 0, 0, 9, 9), [{ worker: 7, inflight: 1 }], ctx())).toEqual({
      worker: 7,
      reason: 'least_cost',
    })
  })

  it('falls back to load without counts, with counts of another shape and with an empty layer', () => {
    for (const odd of [{ id: 'a' }, request(1, 2, 3), request(1, 1, 0, 0, 0, 0, 0, 0)]) {
      expect(unionOf(2).pick(odd, cluster(3, 2), ctx())).toEqual({ worker: 1, reason: 'no_counts' })
    }
  })
})

describe('trust in neighbours', () => {
  const shares = Float32Array.of(0.9, 0.5, 0.5, 0.1)
  it('is full for the pattern of the prompt, none for an unrelated one, and never above or below', () => {
    expect(trustIn(shares, shares, 0.5)).toBe(1)
    expect(trustIn(Float32Array.of(0.5, 0.9, 0.1, 0.5), shares, 0.5)).toBeCloseTo(0)
    expect(trustIn(Float32Array.of(0.1, 0.5, 0.5, 0.9), shares, 0.5)).toBe(0)
    expect(trustIn(Float32Array.of(0.6, 0.5, 0.5, 0.4), shares, 0.5)).toBe(1)
    expect(trustIn(new Float32Array(4).fill(0.5), shares, 0.5)).toBe(0)
    expect(trustIn(Float32Array.of(1.3, 0.5, 0.5, -0.3), shares, 0.5)).toBeCloseTo(0.5)
  })

  it('keeps a prediction with the prompt’s own counts if the neighbours are wrong', () => {
    const one = request(8, 4, 2, 2, 8, 4, 2, 2)
    const signed = { ...one, signature: towards(1) }
    const own = createPredictor(shape).chances(one)!.slice()
    const withPattern = (pattern: Float32Array) =>
      createPredictor({
        ...shape,
        neighbours: { meanPattern: (_, out) => (out.set(pattern), true) },
      }).chances(signed)!
    const reversed = own.toReversed()
    expect(Array.from(withPattern(reversed))).toEqual(Array.from(own))
    expect(Array.from(withPattern(own))).toEqual(
      Array.from(own, chance => expect.closeTo(chance, 6) as number),
    )
  })
})
