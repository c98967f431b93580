import { describe, expect, it } from 'vitest'
import { FitWatch } from './fit-watch.ts'
import { TimeSlices } from './time-slices.ts'

describe('TimeSlices', () => {
  it('keeps recent slices and creates none for idle times', () => {
    const slices = new TimeSlices(10, 3, () => ({ count: 0 }))
    for (const atMs of [100, 105, 119, 135]) slices.at(atMs).count++
    expect(slices.since(135)).toEqual([
      { fromMs: 110, slice: { count: 1 } },
      { fromMs: 130, slice: { count: 1 } },
    ])
    expect(slices.since(135, 10).map(({ fromMs }) => fromMs)).toEqual([130])
    expect(slices.since(900)).toEqual([])
  })

  it('counts in the last slice after the clock was set back', () => {
    const slices = new TimeSlices(10, 3, () => ({ count: 0 }))
    for (const atMs of [100, 80, 101]) slices.at(atMs).count++
    expect(slices.since(105)).toEqual([{ fromMs: 100, slice: { count: 3 } }])
  })
})

describe('FitWatch', () => {
  const CALIBRATION = [
    { q: 0.05, value: 0.6 },
    { q: 0.5, value: 0.9 },
  ]

  it('sums the decisions of the last 15 minutes and ignores older ones', () => {
    const watch = new FitWatch()
    const nowMs = Date.now()
    watch.decided({ reason: 'band_hit', covered: 1, best: 0.8 }, nowMs - 2_000_000)
    watch.decided({ reason: 'band_hit', covered: 1, best: 0.8 }, nowMs - 60_000)
    watch.decided({ reason: 'band_spill', covered: 0.5, best: 0.7 }, nowMs - 30_000)
    watch.decided({ reason: 'no_signature', reject: 'missing' }, nowMs)
    watch.decided({ reason: 'no_counts' }, nowMs)
    const health = watch.health(CALIBRATION, nowMs)
    expect(health).toMatchObject({
      decisions: 4,
      withoutSignature: 2,
      reasons: { band_hit: 1, band_spill: 1, no_signature: 1, no_counts: 1 },
      rejects: { missing: 1 },
      coverage: 0.75,
      covered: 2,
      compared: 2,
    })
    expect(health.quantiles.map(({ q, calibration }) => [q, calibration])).toEqual([
      [0.05, 0.6],
      [0.5, 0.9],
    ])
    expect(health.quantiles[1]!.live).toBeCloseTo(0.705, 2)
  })

  it('compares only requests seen since the artifact changed', () => {
    const watch = new FitWatch()
    const nowMs = Date.now()
    watch.decided({ reason: 'band_hit', best: 0.2 }, nowMs - 120_000)
    watch.forget(nowMs - 60_000)
    watch.decided({ reason: 'band_hit', best: 0.9 }, nowMs)
    const { compared, decisions, quantiles } = watch.health([], nowMs)
    expect([compared, decisions]).toEqual([1, 2])
    expect(quantiles.find(({ q }) => q === 0.5)).toEqual({ q: 0.5, live: expect.closeTo(0.9, 2) })
  })
})
