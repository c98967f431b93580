import { describe, expect, it } from 'vitest'
import { stepsOf } from '../../test/served-support.ts'
import { fitSteps, noiseFactors } from './step-fit.ts'

const device = (batch: number, experts: number, context: number) =>
  500 + 5 * batch + 60 * experts + 2 * (context / 1000)

describe('a fit of recorded steps', () => {
  it('finds the costs of steps that are linear, and no host part', () => {
    const { decode, error, r2, hostBound } = fitSteps(stepsOf(device), 6)
    expect(decode.baseUs).toBeCloseTo(500, 3)
    expect(decode.perRequestUs).toBeCloseTo(5, 3)
    expect(decode.perActiveExpertUs).toBeCloseTo(10, 4)
    expect(decode.perContextKTokenUs).toBeCloseTo(2, 3)
    expect(decode.host).toBeUndefined()
    expect(hostBound).toBe(0)
    expect(error.worst).toBeLessThan(1e-6)
    expect(r2).toBeCloseTo(1, 9)
  })

  it('finds the host part of steps that are never shorter than it', () => {
    const { decode, hostBound } = fitSteps(
      stepsOf((batch, experts, context) => Math.max(3_000, device(batch, experts, context)), {
        noise: 0.02,
      }),
      6,
    )
    expect(decode.host).toMatchObject({ overlaps: true })
    expect(decode.host!.baseUs).toBeCloseTo(3_000, -2)
    expect(decode.perActiveExpertUs).toBeGreaterThan(9)
    expect(decode.perActiveExpertUs).toBeLessThan(11)
    expect(hostBound).toBeGreaterThan(0.1)
    expect(hostBound).toBeLessThan(0.6)
  })

  it('is not bent by a few steps in which the engine paused', () => {
    const steps = stepsOf(device)
    steps.ms = steps.ms.map((ms, i) => (i % 50 === 0 ? 8 * ms : ms))
    const { decode, error } = fitSteps(steps, 6)
    expect(decode.baseUs).toBeCloseTo(500, 3)
    expect(error.median).toBeLessThan(1e-6)
    expect(error.worst).toBeGreaterThan(0.5)
    // The pauses are in the noise: one step of fifty.
    expect(decode.noise!.factors[97]).toBeCloseTo(1, 3)
    expect(decode.noise!.factors[99]).toBeCloseTo(8, 3)
  })

  it('finds both parts although one step of eight takes several times as long', () => {
    const steps = stepsOf((batch, experts, context) => Math.max(3_000, device(batch, experts, context)), {
      noise: 0.1,
    })
    steps.ms = steps.ms.map((ms, i) => (i % 8 === 0 ? ms + 9 + (i % 5) : ms))
    const { decode, hostBound, r2 } = fitSteps(steps, 6)
    expect(decode.host).toMatchObject({ perRequestUs: 0, overlaps: true })
    expect(Math.abs(decode.host!.baseUs / 3_000 - 1)).toBeLessThan(0.02)
    expect(Math.abs(decode.perActiveExpertUs / 10 - 1)).toBeLessThan(0.1)
    expect(hostBound).toBeGreaterThan(0.15)
    expect(r2).toBeLessThan(0.3) // the pauses are most of the variance
  })

  it('takes no host part for steps that bend a little', () => {
    const { decode } = fitSteps(
      stepsOf((batch, experts, context) => device(batch, experts, context) + 0.2 * batch ** 2, {
        noise: 0.3,
      }),
      6,
    )
    expect(decode.host).toBeUndefined()
  })

  it('gives nothing to a column that does not vary', () => {
    const steps = stepsOf((_, experts) => 500 + 60 * experts)
    const { decode } = fitSteps({ ...steps, batch: steps.batch.map(() => 16), contextTokens: undefined }, 6)
    expect(decode.perRequestUs).toBe(0)
    expect(decode.perActiveExpertUs).toBeCloseTo(10, 4)
  })

  it('needs enough steps', () => {
    expect(() => fitSteps(stepsOf(device, { count: 19 }), 6)).toThrow('19 steps, too few')
  })
})

describe('noise factors', () => {
  it('are ascending percentiles whose mean is that of the ratios, whatever the slowest step', () => {
    const ratios = Array.from({ length: 2_000 }, (_, i) => 0.95 + (0.1 * i) / 1_999)
    ratios[1_999] = 50
    const factors = noiseFactors(ratios)
    expect(factors).toHaveLength(101)
    expect(factors).toEqual(factors.toSorted((a, b) => a - b))
    const drawn = factors.slice(1).reduce((sum, factor, i) => sum + (factor + factors[i]!) / 2, 0) / 100
    const mean = ratios.reduce((a, b) => a + b, 0) / ratios.length
    expect(drawn).toBeCloseTo(mean, 2)
  })
})
