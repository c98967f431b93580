import { describe, expect, it } from 'vitest'
import { isPrefillBound, probeOf } from './plan-probe.ts'
import type { Quantiles } from './histogram.ts'
import type { SimulationResult } from './result.ts'

const ms = (p99: number, mean = p99): Quantiles => ({ count: 2250, mean, p50: mean, p90: p99, p99 })

/** A run of 3,000 requests at 450 per second, 2,250 of them measured; requests take 0.5 s. */
function runOf(changes: Partial<SimulationResult> = {}): SimulationResult {
  return {
    policy: 'jsq',
    prefillPolicy: 'prefix_hash',
    topology: '8P16D',
    profile: 'synthetic',
    seed: 0,
    requests: 2250,
    allRequests: 3000,
    spanSeconds: 5,
    ttftMs: ms(30),
    tpotMs: ms(12, 10),
    itlMs: ms(12),
    latencyMs: ms(600, 500),
    activeExperts: 60,
    fullestRankExperts: 60,
    activeByBatch: [],
    batch: 20,
    inflight: 225,
    imbalance: { inflight: 1, tokens: 1 },
    tokensPerSecond: 21_600,
    requestsPerSecond: 450,
    goodput: { share: 1, requestsPerSecond: 450 },
    reasons: {},
    preemptions: 0,
    prefixHitShare: 0,
    ...changes,
  }
}

const slo = { tpotMs: 15, ttftMs: 50 }
const limitsOf = (changes: Partial<SimulationResult>, more: readonly SimulationResult[] = []) =>
  probeOf(450, 16, [runOf(changes), ...more], slo, 48).limits

describe('a probe', () => {
  it('holds if the means over seeds keep every target, whatever a single seed does', () => {
    expect(probeOf(450, 16, [runOf()], slo, 48)).toMatchObject({
      holds: true,
      limits: [],
      requests: 3000,
      requestSeconds: 0.5,
    })
    expect(limitsOf({ tpotMs: ms(16) }, [runOf({ tpotMs: ms(13.5) })])).toEqual([])
    expect(limitsOf({ tpotMs: ms(16.6) }, [runOf({ tpotMs: ms(13.5) })])).toEqual(['tpot'])
  })

  it('names what breaks', () => {
    expect(limitsOf({ tpotMs: ms(15.1) })).toEqual(['tpot'])
    expect(limitsOf({ ttftMs: ms(51) })).toEqual(['ttft'])
    expect(limitsOf({ ttftMs: null })).toEqual([])
  })

  it('detects that requests pile up, and where', () => {
    expect(limitsOf({ requestsPerSecond: 430 })).toEqual([])
    expect(limitsOf({ requestsPerSecond: 380 })).toEqual(['decode_rate'])
    const waiting = probeOf(
      450,
      16,
      [runOf({ requestsPerSecond: 380, ttftMs: ms(49), latencyMs: ms(90) })],
      { tpotMs: 15 },
      48,
    )
    expect(waiting.limits).toEqual(['prefill_rate'])
    expect(isPrefillBound(waiting)).toBe(true)
  })

  it('does not take a cluster that is still filling up in a short run for one that falls behind', () => {
    const short = { spanSeconds: 1, requests: 450, allRequests: 600, inflight: 180, requestsPerSecond: 310 }
    expect(limitsOf(short)).toEqual([])
    expect(limitsOf({ ...short, tpotMs: ms(2) })).toEqual(['decode_rate'])
  })
})
