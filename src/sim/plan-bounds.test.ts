import { describe, expect, it } from 'vitest'
import { shipped } from '../../test/data.ts'
import { failure } from '../../test/trace-support.ts'
import { loadProfile } from '../cost/profile-file.ts'
import type { CostProfile } from '../cost/profile.ts'
import { boundsOf, requestsFor, type Traffic, trafficOf } from './plan-bounds.ts'
import { parseTopology } from './topology.ts'

const h200 = await loadProfile('h200-first')
const traffic: Traffic = { experts: 128, topK: 8, promptTokens: 128, decodeTokens: 50 }
const bounds = (topology: string, sloMs: number, profile: CostProfile = h200) =>
  boundsOf(profile, traffic, parseTopology(topology), sloMs)
/** 48 layers of 28 µs and 3.1 µs per expert. */
const stepUs = (batch: number, active: number) => 1344 + 25 * batch + 48 * (28 + 3.1 * active)

describe('bounds from a profile, before any simulation', () => {
  it('are the step of a single request, and full batches of equal requests as the maximum', () => {
    const { aloneMs, highest, lowest, prefill } = bounds('16D', 15)
    expect(aloneMs).toBeCloseTo(stepUs(1, 8) / 1000, 9)
    expect(highest).toBeCloseTo((16 * 256 * 1e6) / (stepUs(256, 8) * 50), 6)
    expect(lowest).toBeCloseTo((0.01 * 16 * 1e6) / (stepUs(1, 8) * 50), 6)
    expect(prefill).toBeNull()
  })

  it('are limited by prefill if that is lower', () => {
    const { prefill, highest } = bounds('2P16D', 15)
    expect(prefill).toBeCloseTo((2 * 1e6) / (((8000 + 25 * 8192) * 128) / 8192), 6)
    expect(highest).toBe(prefill)
  })

  it('start the search where the step of a batch of evenly drawn experts lasts as long as the SLO', () => {
    const { start, lowest, highest } = bounds('16D', 15)
    const batch = (start * 50 * 15_000) / (16 * 1e6)
    expect(stepUs(batch, 128 * (1 - (1 - 8 / 128) ** batch)) / 15_000).toBeCloseTo(1, 1)
    expect(bounds('16D', 1).start).toBe(lowest)
    expect(bounds('16D', 1000).start).toBeLessThanOrEqual(highest)
  })

  it('are finite even for a profile without costs', () => {
    const decode = { ...h200.decode, baseUs: 0, perRequestUs: 0, perLayerUs: 0, perActiveExpertUs: 0 }
    const free = { ...h200, decode, prefill: { baseUs: 0, perTokenUs: 0 } }
    expect(bounds('8P16D', 15, free)).toMatchObject({
      aloneMs: 0,
      lowest: 1e6,
      start: 1e6,
      highest: 1e6,
      prefill: 1e6,
    })
  })

  it('hold no more requests in a batch than the KV cache does', () => {
    const small = { ...h200, kv: { ...h200.kv, capacityTokens: 10 * (128 + 25) } }
    expect(bounds('16D', 15, small).highest).toBeCloseTo((16 * 10 * 1e6) / (stepUs(10, 8) * 50), 6)
  })
})

describe('the requests of a run', () => {
  const topology = parseTopology('16D')
  it('are as many as requested, more if those would not fill the workers, and never ten times more', () => {
    const load = { profile: h200, traffic, topology }
    expect(requestsFor(100, 3000, { ...load, sloTpotMs: 15 })).toBe(3000)
    // 525 in flight, one and a half times within the first 15 %
    expect(requestsFor(700, 3000, { ...load, sloTpotMs: 15 })).toBe(5300)
    expect(requestsFor(700, 100, { ...load, sloTpotMs: 15 })).toBe(1000)
    expect(requestsFor(1e6, 1e6, { ...load, sloTpotMs: 1000 })).toBe(1e6)
    expect(requestsFor(1e6, 30_000, { ...load, sloTpotMs: 1000 })).toBe(41_000) // 16 full batches
  })
})

describe('traffic of a trace', () => {
  it('has mean lengths', async () => {
    const found = await trafficOf(shipped('lab16-task.evaluation'))
    expect(found).toMatchObject({ experts: 128, topK: 8, decodeTokens: 48 })
    expect(found.promptTokens).toBeGreaterThan(48)
  })

  it('needs recorded experts', async () => {
    const file = shipped('lab16-task.calibration')
    expect((await failure(file, () => trafficOf(file))).code).toBe('ELDR_TENSOR_MISSING')
  })
})
