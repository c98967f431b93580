import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type CostProfile, type HostCost, stepUs } from '../cost/profile.ts'
import { loadProfile } from '../cost/profile-file.ts'
import { createRandom } from '../math/random.ts'
import { roundRobin } from '../policy/round-robin.ts'
import type { RecordedWorkload } from './recorded-workload.ts'
import { replayOf } from './replay.ts'
import { simulate } from './simulate.ts'
import { parseTopology } from './topology.ts'

const first = await loadProfile('h200-first')
/** A step of any batch takes 1,000 µs on the device. */
const flat = withDecode({ baseUs: 1_000, perRequestUs: 0, perLayerUs: 0, perActiveExpertUs: 0 })
const replay = madeUp()

function withDecode(change: Partial<CostProfile['decode']>): CostProfile {
  return { ...first, decode: { ...first.decode, ...change } }
}

function withHost(profile: CostProfile, host: HostCost): CostProfile {
  return { ...profile, decode: { ...profile.decode, host } }
}

function madeUp({ rows = 16, steps = 8, layers = 2, experts = 32, topK = 4 } = {}) {
  const source = createRandom(3)
  const ids = Uint8Array.from({ length: rows * steps * layers * topK }, () => source.below(experts))
  return replayOf({ layers, experts, topK, ids, maxSteps: steps, steps: new Int32Array(rows).fill(steps) })
}

interface Step {
  readonly decoder: number
  readonly beganUs: number
}

/** Requests that all arrive at the given times, in turn on the workers. */
function run(
  profile: CostProfile,
  topology: string,
  {
    timesUs = [0, 0],
    decodeTokens = 2,
    seed = 1,
  }: { timesUs?: number[]; decodeTokens?: number; seed?: number } = {},
) {
  const count = timesUs.length
  const lengths: RecordedWorkload = {
    source: 'test',
    timesUs: Float64Array.from(timesUs),
    promptTokens: new Int32Array(count).fill(10),
    outputTokens: new Int32Array(count).fill(decodeTokens + 1),
  }
  const steps: Step[] = []
  const { result } = simulate({
    workload: { arrivals: { kind: 'recorded', timesUs: lengths.timesUs }, lengths, rows: 'replacement' },
    requests: count,
    seed,
    replay,
    profile,
    topology: parseTopology(topology),
    decodePolicy: roundRobin(),
    warmUpShare: 0,
    coolDownShare: 0,
    onStep: (_, decoder, beganUs) => steps.push({ decoder, beganUs }),
  })
  return { result, steps }
}

const meanUs = (quantiles: { readonly mean: number }) => quantiles.mean * 1000

describe('decode workers that share a device', () => {
  it('each take twice as long for their device parts if two equal steps begin together', () => {
    const { result } = run(flat, '2D/2')
    expect(meanUs(result.latencyMs)).toBeCloseTo(2 * 2_000, 6)
    expect(meanUs(result.itlMs)).toBeCloseTo(2_000, 6)
    expect(meanUs(result.tpotMs)).toBeCloseTo(2_000, 6)
  })

  it('do not slow those of another device', () => {
    expect(meanUs(run(flat, '2D').result.latencyMs)).toBeCloseTo(2_000, 6)
    const { result } = run(flat, '4D/2', { timesUs: [0, 0, 0] })
    // Workers 0 and 1 share, worker 2 has the second device to itself.
    expect(meanUs(result.latencyMs)).toBeCloseTo((4_000 + 4_000 + 2_000) / 3, 6)
  })

  it('do host parts in parallel: 300 alone, then both device parts at half speed', () => {
    const profile = withHost(flat, { baseUs: 300, perRequestUs: 0, overlaps: false })
    const { steps, result } = run(profile, '2D/2')
    expect(steps.map(({ beganUs }) => beganUs)).toEqual([0, 0, 2_300, 2_300])
    expect(meanUs(result.latencyMs)).toBeCloseTo(2 * 2_300, 6)
  })

  it('use the device while another is in its host part', () => {
    // Worker 0: host 0–300, device from 300, alone until 400 (100 done), shared until its 900 more take
    // 1,800. Worker 1: host 100–400, device from 400; at 2,200 it has done 900, then 100 alone while worker
    // 0's host runs.
    const profile = withHost(flat, { baseUs: 300, perRequestUs: 0, overlaps: false })
    const { steps } = run(profile, '2D/2', { timesUs: [0, 100] })
    expect(steps.map(({ decoder }) => decoder)).toEqual([0, 1, 0, 1])
    ;[0, 100, 2_200, 2_300].forEach((us, i) => expect(steps[i]!.beganUs).toBeCloseTo(us, 6))
  })

  it('wait for the longer part if parts overlap', () => {
    const slowHost = withHost(flat, { baseUs: 2_500, perRequestUs: 0, overlaps: true })
    expect(meanUs(run(slowHost, '2D/2').result.latencyMs)).toBeCloseTo(2 * 2_500, 6)
    const fastHost = withHost(flat, { baseUs: 1_500, perRequestUs: 0, overlaps: true })
    expect(meanUs(run(fastHost, '2D/2').result.latencyMs)).toBeCloseTo(2 * 2_000, 6)
    // Four device parts in 4,000 µs leave no time for the host to be seen.
    expect(meanUs(run(slowHost, '4D/4', { timesUs: [0, 0, 0, 0] }).result.latencyMs)).toBeCloseTo(8_000, 6)
  })

  it('charge the host for each request of the batch', () => {
    const profile = withHost(flat, { baseUs: 100, perRequestUs: 50, overlaps: false })
    expect(stepUs(profile, 4, 0, 0)).toBe(1_300)
    expect(meanUs(run(profile, '1D', { timesUs: [0, 0], decodeTokens: 1 }).result.latencyMs)).toBeCloseTo(
      // The first begins at once; the second joins the next step.
      (1_150 + 1_150 + 1_150) / 2,
      6,
    )
  })

  it('run at full speed up to the capacity of the device', () => {
    const profile = withDecode({ ...flat.decode, sharing: { by: 'layer', capacity: 2 } })
    expect(meanUs(run(profile, '2D/2').result.latencyMs)).toBeCloseTo(2_000, 6)
    expect(meanUs(run(profile, '4D/4', { timesUs: [0, 0, 0, 0] }).result.latencyMs)).toBeCloseTo(4_000, 6)
  })

  it('take the same times as alone if the device has capacity for all', () => {
    const host = { baseUs: 400, perRequestUs: 30, overlaps: true }
    const profile = withHost(withDecode({ sharing: { by: 'bandwidth', capacity: 3 } }), host)
    const timesUs = [0, 500, 700, 2_000, 2_100, 9_000]
    const alone = run(profile, '3D', { timesUs, decodeTokens: 8 })
    const shared = run(profile, '3D/3', { timesUs, decodeTokens: 8 })
    expect(shared.steps.length).toBe(alone.steps.length)
    expect(shared.result.latencyMs.mean).toBeCloseTo(alone.result.latencyMs.mean, 9)
    expect(shared.result.activeExperts).toBeCloseTo(alone.result.activeExperts, 9)
  })

  it('lose and make no work: the device is busy for the sum of the device parts', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 5 }), fc.integer({ min: 1, max: 12 }), (workers, tokens) => {
        // All arrive at once and all steps are equal, so the device never idles: it ends with its work.
        const timesUs = Array.from({ length: workers }, () => 0)
        const { result, steps } = run(flat, `${workers}D/${workers}`, { timesUs, decodeTokens: tokens })
        expect(steps.length).toBe(workers * tokens)
        expect(meanUs(result.latencyMs)).toBeCloseTo(1_000 * workers * tokens, 3)
      }),
    )
  })

  it('give the same numbers for the same seed, and others for another', () => {
    const noisy = withDecode({ noise: { factors: [0.9, 1, 1.3] } })
    const latency = (seed: number) => run(noisy, '2D/2', { decodeTokens: 20, seed }).result.latencyMs.mean
    expect(latency(1)).toBe(latency(1))
    expect(latency(1)).not.toBe(latency(2))
  })
})
