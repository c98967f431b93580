import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { loadProfile } from '../cost/profile-file.ts'
import { prefillUs, stepUs, transferUs } from '../cost/profile.ts'
import { createRandom } from '../math/random.ts'
import type { DecodePolicy } from '../policy/decode-policy.ts'
import { jsq } from '../policy/jsq.ts'
import { prefillLeastLoaded } from '../policy/prefill-least-loaded.ts'
import { prefixHash } from '../policy/prefill-prefix-hash.ts'
import { random } from '../policy/random-pick.ts'
import { isOverloaded } from './overload.ts'
import type { RecordedWorkload } from './recorded-workload.ts'
import { replayOf } from './replay.ts'
import { simulate, type SimulationInput } from './simulate.ts'
import { parseTopology } from './topology.ts'

const profile = await loadProfile('h200-first')
const replay = madeUp()
const poisson = (perSecond: number) => ({ arrivals: { kind: 'poisson', perSecond } }) as const

/** Requests of `steps` decode steps with random experts; request r has prompts of 20 + r tokens. */
function madeUp({ rows = 40, steps = 12, layers = 3, experts = 40, topK = 4 } = {}) {
  const source = createRandom(7)
  const ids = Uint8Array.from({ length: rows * steps * layers * topK }, () => source.below(experts))
  const promptTokens = Array.from({ length: rows }, (_, r) => 20 + r)
  return replayOf({
    layers,
    experts,
    topK,
    ids,
    maxSteps: steps,
    steps: Array.from({ length: rows }, () => steps),
    promptTokens,
  })
}

function run(parts: Partial<SimulationInput> & { on?: string } = {}) {
  const { on = '4D', ...rest } = parts
  return simulate({
    workload: poisson(100),
    requests: 300,
    seed: 1,
    replay,
    profile,
    topology: parseTopology(on),
    decodePolicy: jsq(),
    prefillPolicy: prefillLeastLoaded(),
    ...rest,
  }).result
}

/** Lengths for a workload without prefixes. */
function lengthsOf(promptTokens: number[], outputTokens: number[]): RecordedWorkload {
  const timesUs = new Float64Array(promptTokens.length)
  return {
    source: 'test',
    timesUs,
    promptTokens: Int32Array.from(promptTokens),
    outputTokens: Int32Array.from(outputTokens),
  }
}

describe('a single request', () => {
  const alone = {
    requests: 1,
    warmUpShare: 0,
    coolDownShare: 0,
    workload: { ...poisson(1), rows: Int32Array.of(5) },
  } as const
  /**
   * Active experts of row 5 per step, by sets. The profile has 48 layers for the trace's 3, so each stands
   * for a third.
   */
  const activeAt = (step: number) => {
    let bits = 0
    for (let w = 0; w < replay.wordsPerStep; w++)
      bits += (replay.words[replay.start[5]! + step * replay.wordsPerStep + w]! >>> 0)
        .toString(2)
        .replaceAll('0', '').length
    return bits / replay.layers
  }
  const costly = { ...profile, decode: { ...profile.decode, perContextKTokenUs: 40 } }
  const stepsUs = (steps: number) =>
    Array.from({ length: steps }, (_, s) => stepUs(costly, 1, activeAt(s % 12), 25 + s + 1))
  const sum = (values: number[]) => values.reduce((a, b) => a + b, 0)

  it('takes what the profile says, step by step', () => {
    const result = run({ ...alone, profile: costly })
    expect(result.latencyMs.mean * 1000).toBeCloseTo(sum(stepsUs(12)), 6)
    expect(result.tpotMs.mean * 1000).toBeCloseTo(sum(stepsUs(12).slice(1)) / 11, 6)
    expect(result.activeExperts).toBeCloseTo(sum(Array.from({ length: 12 }, (_, s) => activeAt(s))) / 12, 9)
    expect(result).toMatchObject({
      requests: 1,
      batch: 1,
      ttftMs: null,
      prefixHitShare: null,
      reasons: { least_loaded: 1 },
    })
  })

  it('has its first token after prefill, and its second after the transfer and a step', () => {
    const result = run({ ...alone, profile: costly, on: '2P4D' })
    expect(result.ttftMs!.mean * 1000).toBeCloseTo(prefillUs(costly, 25), 6)
    const decodeUs = sum(stepsUs(12))
    expect(result.latencyMs.mean * 1000).toBeCloseTo(
      prefillUs(costly, 25) + transferUs(costly, 25) + decodeUs,
      6,
    )
    expect(result.tpotMs.mean * 1000).toBeCloseTo(sum(stepsUs(12).slice(1)) / 11, 6)
    expect(result.itlMs.count).toBe(12)
    expect(result.itlMs.mean * 1000).toBeCloseTo((transferUs(costly, 25) + decodeUs) / 12, 6)
  })

  it('starts its recorded steps over if its output is longer', () => {
    const lengths = lengthsOf([25], [31])
    const result = run({ ...alone, profile: costly, workload: { ...alone.workload, lengths } })
    expect(result.latencyMs.mean * 1000).toBeCloseTo(sum(stepsUs(30)), 6)
  })

  it('never reaches a decode worker if its first token is its last', () => {
    const result = run({
      ...alone,
      workload: { ...alone.workload, lengths: lengthsOf([25], [1]) },
      on: '1P1D',
    })
    expect(result).toMatchObject({
      requests: 1,
      reasons: {},
      tpotMs: { count: 0 },
      latencyMs: { count: 1 },
      goodput: { share: 1 },
    })
  })

  it('is prefilled in chunks if its prompt is longer than a prefill step, and pays for each', () => {
    const result = run({ ...alone, on: '1P1D', limits: { prefillTokensPerStep: 10 } })
    expect(result.ttftMs!.mean * 1000).toBeCloseTo(
      3 * profile.prefill.baseUs + 25 * profile.prefill.perTokenUs,
      6,
    )
  })
})

describe('a queue with a formula', () => {
  const stepMs = 2
  const constant = {
    ...profile,
    decode: {
      kind: 'linear',
      baseUs: stepMs * 1000,
      perRequestUs: 0,
      perLayerUs: 0,
      perActiveExpertUs: 0,
      perContextKTokenUs: 0,
    },
  } as const
  const single = { profile: constant, on: '1D', limits: { maxBatch: 1 }, requests: 60_000 }

  it('M/D/1: equal requests served one at a time wait ρD/(2(1 − ρ)) on average', () => {
    const serviceMs = 12 * stepMs
    const load = 0.7
    const { latencyMs } = run({ ...single, workload: poisson((1000 / serviceMs) * load) })
    expect(latencyMs.mean / (serviceMs + (load * serviceMs) / (2 * (1 - load)))).toBeCloseTo(1, 1)
  })

  it('M/M/1: requests of exponential length stay 1/(1 − ρ) times their service time on average', () => {
    const source = createRandom(4)
    const tokens = Array.from(
      { length: single.requests },
      () => 2 + Math.floor(-30 * Math.log(1 - source.uniform())),
    )
    const serviceMs = (stepMs * tokens.reduce((sum, count) => sum + count - 1, 0)) / tokens.length
    const load = 0.6
    const workload = {
      ...poisson((1000 / serviceMs) * load),
      lengths: lengthsOf(
        tokens.map(() => 9),
        tokens,
      ),
    }
    expect(Math.abs(run({ ...single, workload }).latencyMs.mean / (serviceMs / (1 - load)) - 1)).toBeLessThan(
      0.06,
    )
  })

  it('M/D/∞: with room for all, a request takes its own steps and half a step of waiting, however many there are', () => {
    const { latencyMs, tpotMs } = run({ ...single, limits: { maxBatch: 256 }, workload: poisson(2_000) })
    expect(tpotMs.p99).toBeCloseTo(stepMs, 2)
    expect(latencyMs.mean).toBeCloseTo(12.5 * stepMs, 1)
  })

  it('obeys Little’s law: in flight = rate × time from arrival to last token', () => {
    for (const on of ['4D', '2P4D', '2P4DxEP4']) {
      const { inflight, latencyMs, requestsPerSecond } = run({ on, requests: 8_000, workload: poisson(100) })
      expect(inflight / ((requestsPerSecond * latencyMs.mean) / 1000)).toBeCloseTo(1, 1)
    }
  })
})

describe('every run', () => {
  /** A policy that checks its calls. */
  function watched(inner: DecodePolicy) {
    const at = new Map<string, number>()
    let dispatched = 0
    const policy: DecodePolicy = {
      name: inner.name,
      pick(request, candidates, ctx) {
        const counts = new Map<number, number>()
        for (const worker of at.values()) counts.set(worker, (counts.get(worker) ?? 0) + 1)
        for (const { worker, inflight } of candidates) expect(inflight).toBe(counts.get(worker) ?? 0)
        return inner.pick(request, candidates, ctx)
      },
      dispatched(request, worker) {
        expect(at.has(request.id)).toBe(false)
        at.set(request.id, worker)
        dispatched++
      },
      released(request, worker) {
        expect(at.get(request.id)).toBe(worker)
        at.delete(request.id)
      },
    }
    return { policy, at, dispatched: () => dispatched }
  }

  it('ends each request once, reports each to the policy once, and leaves nothing in flight, even with preemptions', () => {
    const cases = fc.record({
      on: fc.constantFrom('1D', '3D', '2P3D', '1P2DxEP4'),
      rate: fc.constantFrom(20, 300, 3_000),
      maxBatch: fc.constantFrom(1, 3, 64),
      kvTokens: fc.constantFrom(1, 100, 400, 1e6),
      prefillTokensPerStep: fc.constantFrom(1, 64, 8_192),
      prefixCacheTokens: fc.constantFrom(0, 300),
      seed: fc.nat(),
    })
    fc.assert(
      fc.property(cases, ({ on, rate, seed, ...limits }) => {
        const { policy, at, dispatched } = watched(random())
        const result = run({
          on,
          limits,
          seed,
          requests: 60,
          warmUpShare: 0,
          coolDownShare: 0,
          workload: poisson(rate),
          decodePolicy: policy,
        })
        expect(dispatched()).toBe(60)
        expect(at.size).toBe(0)
        expect(result).toMatchObject({
          requests: 60,
          allRequests: 60,
          latencyMs: { count: 60 },
          tpotMs: { count: 60 },
        })
        expect(result.tokensPerSecond * result.spanSeconds).toBeCloseTo(60 * 12, 6)
        const prefillTokens = on.includes('P') ? 60 : 0
        expect(result.itlMs.count).toBe(60 * 11 + prefillTokens)
      }),
      { numRuns: 60 },
    )
  })

  it('preempts if contexts outgrow the KV cache, and pays for recomputing them', () => {
    const tight = { on: '1D', requests: 60, workload: poisson(500), warmUpShare: 0, coolDownShare: 0 }
    const [roomy, short] = [run(tight), run({ ...tight, limits: { kvTokens: 150 } })]
    expect(roomy.preemptions).toBe(0)
    expect(short.preemptions).toBeGreaterThan(0)
    expect(short.latencyMs.mean).toBeGreaterThan(roomy.latencyMs.mean)
    expect(short.requests).toBe(60)
  })

  it('gives exactly the same numbers for the same input, and different ones for another seed', () => {
    const parts = {
      on: '2P4DxEP2',
      workload: { arrivals: { kind: 'gamma', perSecond: 100, shape: 0.3 } },
    } as const
    expect(run({ ...parts, decodePolicy: random() })).toEqual(run({ ...parts, decodePolicy: random() }))
    expect(run({ ...parts, seed: 2 })).not.toEqual(run(parts))
  })

  it('measures only requests between warm-up and cool-down', () => {
    const { requests, allRequests, reasons } = run({ requests: 200, warmUpShare: 0.2, coolDownShare: 0.3 })
    expect([requests, allRequests, reasons]).toEqual([100, 200, { least_loaded: 100 }])
  })

  it('stops when a recorded workload ends', () => {
    const lengths = lengthsOf([5, 5, 5], [2, 3, 4])
    expect(run({ workload: { ...poisson(10), lengths } }).allRequests).toBe(3)
  })

  it('counts requests that keep the SLO as good', () => {
    const strict = (slo: SimulationInput['slo']) => run({ on: '2P4D', slo: slo! }).goodput.share
    expect(strict({})).toBe(1)
    expect(strict({ ttftMs: 1 })).toBe(0)
    expect(strict({ tpotMs: 1 })).toBe(0)
    const { tpotMs } = run({ on: '2P4D' })
    // Half of the requests are faster once they run; their waiting before that counts too.
    expect(strict({ tpotMs: tpotMs.p50 })).toBeGreaterThan(0.3)
    expect(strict({ tpotMs: tpotMs.p50 })).toBeLessThan(0.52)
  })

  it('counts waiting for a decode worker against the SLO, and never more good requests than end', () => {
    const limits = { maxBatch: 4 }
    const overloaded = { on: '8P1D', workload: poisson(2000), limits }
    const slowestMs = run(overloaded).tpotMs.p99
    const { goodput, requestsPerSecond } = run({ ...overloaded, slo: { tpotMs: 1.5 * slowestMs } })
    expect(goodput.share).toBeLessThan(0.9)
    expect(goodput.requestsPerSecond).toBeLessThan(requestsPerSecond)
    const idle = run({ ...overloaded, slo: {} })
    expect(idle.goodput.requestsPerSecond).toBeLessThanOrEqual(idle.requestsPerSecond)
    expect(isOverloaded([idle])).toBe(true)
    expect(isOverloaded([run({ on: '2P4D' })])).toBe(false)
  })

  it('rejects a picked worker that does not exist, and prefill without a policy', () => {
    const lost: DecodePolicy = { name: 'jsq', pick: () => ({ worker: 9, reason: 'random' }) }
    expect(() => run({ decodePolicy: lost })).toThrow('picked worker 9 of 4')
    const { prefillPolicy: _, ...input } = {
      workload: poisson(1),
      requests: 1,
      seed: 1,
      replay,
      profile,
      topology: parseTopology('1P1D'),
      decodePolicy: jsq(),
      prefillPolicy: 0,
    }
    expect(() => simulate(input)).toThrow('without a prefill policy')
  })
})

describe('the parts of a cluster', () => {
  it('do less prefill with a prefix cache, and even less if similar prompts meet', () => {
    const parts = { on: '4P4D', requests: 2_000, limits: { prefixCacheTokens: 600, blockTokens: 4 } }
    const off = run({ ...parts, limits: {} })
    const spread = run(parts)
    const together = run({ ...parts, prefillPolicy: prefixHash() })
    expect(off.prefixHitShare).toBe(0)
    expect(together.prefixHitShare!).toBeGreaterThan(1.5 * spread.prefixHitShare!)
    expect(together.ttftMs!.mean).toBeLessThan(off.ttftMs!.mean)
  })

  it('share text only if a recorded workload says so', () => {
    const rows = Array.from({ length: 300 }, () => 64)
    const prefixes = {
      blockTokens: 16,
      starts: Int32Array.from({ length: 301 }, (_, i) => 2 * i),
      ids: Int32Array.from({ length: 600 }, (_, at) => (at % 2 === 0 ? 0 : at)),
    }
    const lengths = { ...lengthsOf(rows, rows), prefixes }
    const { prefixHitShare } = run({
      on: '1P4D',
      workload: { ...poisson(50), lengths },
      limits: { prefixCacheTokens: 10_000 },
    })
    expect(prefixHitShare).toBeCloseTo(16 / 64, 2) // the first block is shared by all, the second by none
  })

  it('pay for the fullest rank if decode workers are expert-parallel, and for the union with one rank', () => {
    const one = run({ on: '4D' })
    const four = run({ on: '4DxEP4' })
    expect(one.fullestRankExperts).toBe(one.activeExperts)
    expect(four.fullestRankExperts).toBeLessThan(four.activeExperts)
    expect(four.fullestRankExperts).toBeGreaterThan(four.activeExperts / 4)
    expect(four.tpotMs.p50).toBeLessThan(one.tpotMs.p50)
    // All experts on the first rank: as slow as one GPU.
    const heaped = run({ on: '4DxEP4', placement: { rankOf: new Uint16Array(3 * 40) } })
    expect(heaped.tpotMs).toEqual(one.tpotMs)
    const exchanging = run({
      on: '4DxEP4',
      placement: { rankOf: new Uint16Array(3 * 40) },
      limits: { allToAllUs: 10 },
    })
    expect(exchanging.tpotMs.p50).toBeGreaterThan(one.tpotMs.p50 + 0.48)
  })

  it('report every step to a listener', () => {
    let tokens = 0
    run({ requests: 20, onStep: ({ batch }) => (tokens += batch) })
    expect(tokens).toBe(20 * 12)
  })
})
