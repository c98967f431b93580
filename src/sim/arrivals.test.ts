import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { type ArrivalSpec, createArrivals } from './arrivals.ts'

function gapsOf(spec: ArrivalSpec, count: number, seed = 1): Float64Array {
  const next = createArrivals(spec, createRandom(seed))
  let last = 0
  return Float64Array.from({ length: count }, () => {
    const time = next()
    const gap = time - last
    last = time
    return gap
  })
}

const meanOf = (values: Float64Array) => values.reduce((a, b) => a + b, 0) / values.length
/** Squared coefficient of variation. */
const variation = (values: Float64Array) => meanOf(values.map(value => value ** 2)) / meanOf(values) ** 2 - 1

/** Variance over mean of the number of arrivals in one-second windows: 1 for Poisson, more for bursts. */
function dispersion(gaps: Float64Array): number {
  const counts: number[] = []
  let time = 0
  for (const gap of gaps) {
    time += gap / 1e6
    counts[Math.floor(time)] = (counts[Math.floor(time)] ?? 0) + 1
  }
  const windows = Float64Array.from({ length: counts.length - 1 }, (_, at) => counts[at] ?? 0)
  return variation(windows) * meanOf(windows)
}

describe('arrivals', () => {
  it('are Poisson: exponential gaps of the requested mean, and Poisson counts per second', () => {
    const gaps = gapsOf({ kind: 'poisson', perSecond: 50 }, 200_000)
    expect(meanOf(gaps) / 20_000).toBeCloseTo(1, 2)
    expect(variation(gaps)).toBeCloseTo(1, 1)
    expect(dispersion(gaps)).toBeCloseTo(1, 1)
    const medianUs = gaps.toSorted()[100_000]!
    expect(medianUs / 20_000 / Math.LN2).toBeCloseTo(1, 1)
  })

  it.each([0.25, 1, 4])(
    'come in bursts with a gamma shape of %d: the same rate, squared variation 1/shape',
    shape => {
      const gaps = gapsOf({ kind: 'gamma', perSecond: 50, shape }, 200_000)
      expect(Math.abs(meanOf(gaps) / 20_000 - 1)).toBeLessThan(0.02)
      expect(Math.abs(variation(gaps) * shape - 1)).toBeLessThan(0.05)
      expect(Math.abs(dispersion(gaps) * shape - 1)).toBeLessThan(0.15)
    },
  )

  it('alternate on and off: the requested rate over both phases, and no arrival while off', () => {
    const gaps = gapsOf({ kind: 'on_off', perSecond: 50, onSeconds: 1, offSeconds: 3 }, 400_000)
    expect(Math.abs(meanOf(gaps) / 20_000 - 1)).toBeLessThan(0.05)
    expect(dispersion(gaps)).toBeGreaterThan(20)
    // While on, the rate is four times as high: half of all gaps are below ln 2 of a quarter of the mean.
    expect(Math.abs(gaps.toSorted()[200_000]! / (5_000 * Math.LN2) - 1)).toBeLessThan(0.03)
  })

  it('replay recorded times, from zero, and end; a rate stretches them', () => {
    const timesUs = Float64Array.of(1_000, 1_500, 4_000)
    const next = createArrivals({ kind: 'recorded', timesUs }, createRandom(1))
    expect([next(), next(), next(), next()]).toEqual([0, 500, 3_000, Infinity])
    const stretched = createArrivals({ kind: 'recorded', timesUs, perSecond: 100 }, createRandom(1))
    expect(stretched()).toBe(0)
    expect(stretched()).toBeCloseTo(20_000 / 6)
    expect(stretched()).toBeCloseTo(20_000)
  })

  it('are the same for the same seed and differ between seeds', () => {
    const spec = { kind: 'gamma', perSecond: 9, shape: 0.5 } as const
    expect(gapsOf(spec, 100)).toEqual(gapsOf(spec, 100))
    expect(gapsOf(spec, 100)).not.toEqual(gapsOf(spec, 100, 2))
  })

  it('reject an invalid rate or shape', () => {
    expect(() => gapsOf({ kind: 'poisson', perSecond: 0 }, 1)).toThrow('perSecond is 0')
    expect(() => gapsOf({ kind: 'gamma', perSecond: 1, shape: NaN }, 1)).toThrow('shape is NaN')
    expect(() => gapsOf({ kind: 'on_off', perSecond: 1, onSeconds: 1, offSeconds: 0 }, 1)).toThrow(
      'offSeconds is 0',
    )
  })
})
