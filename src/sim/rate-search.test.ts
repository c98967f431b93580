import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Pool } from './parallel.ts'
import { findRates, type LoadWanted, nextRate } from './rate-search.ts'
import type { SimulationResult } from './result.ts'
import type { SweepJob } from './sweep.ts'

/** A cluster whose batch depends on the rate alone; counts its runs. */
function cluster(batchAt: (rate: number, setting: number) => number) {
  const ran: number[] = []
  const pool: Pool<SweepJob<number>, SimulationResult> = {
    run: async jobs => {
      ran.push(...jobs.map(({ rate }) => rate))
      return jobs.map(({ rate, setting }) => ({ batch: batchAt(rate, setting!) }) as SimulationResult)
    },
    close: async () => {},
  }
  return { pool, ran }
}

const wanted = (batch: number, guess: number, setting = 1): LoadWanted<number> => ({
  variant: 'jsq',
  setting,
  batch,
  guess,
})

describe('the search for rates', () => {
  it('finds the rate of a batch to 2 % from any start, in a few runs', async () => {
    const power = fc.record({
      slope: fc.double({ min: 1, max: 2.5, noNaN: true }),
      scale: fc.double({ min: 0.01, max: 1, noNaN: true }),
    })
    const property = fc.asyncProperty(
      power,
      fc.integer({ min: 5, max: 60 }),
      fc.double({ min: 0.4, max: 2.5, noNaN: true }),
      async ({ slope, scale }, batch, off) => {
        const { pool, ran } = cluster(rate => (scale * rate) ** slope)
        const right = batch ** (1 / slope) / scale
        const [found] = await findRates([wanted(batch, right * off)], { pool, seed: 0 })
        expect(Math.abs(found!.batch / batch - 1)).toBeLessThan(0.021)
        expect(ran.length).toBeLessThanOrEqual(6)
        expect(new Set(ran).size).toBe(ran.length)
      },
    )
    await fc.assert(property)
  })

  it('gives the same for a load with and without others', async () => {
    const batchAt = (rate: number, setting: number) => setting * rate ** 1.3
    const loads = [wanted(10, 3), wanted(35, 100), wanted(20, 1, 2)]
    const together = await findRates(loads, { ...cluster(batchAt), seed: 0 })
    for (const [at, load] of loads.entries()) {
      expect(await findRates([load], { ...cluster(batchAt), seed: 0 })).toEqual([together[at]])
    }
  })

  it('ends with the nearest batch if a cluster cannot reach the requested one', async () => {
    const { pool, ran } = cluster(rate => Math.min(12, rate))
    const [found] = await findRates([wanted(20, 5)], { pool, seed: 0 })
    expect(found!.batch).toBe(12)
    expect(ran.length).toBeLessThanOrEqual(6)
    expect(Math.max(...ran)).toBeLessThan(5 * 2 ** 6)
  })

  it('tries rates of three digits, and no rate twice', () => {
    expect(nextRate({ batch: 20, guess: 123.456 }, [])).toBe(123)
    expect(nextRate({ batch: 20, guess: 1 }, [{ rate: 100, batch: 20.1 }])).toBeUndefined()
    expect(
      nextRate({ batch: 20, guess: 1 }, [
        { rate: 100, batch: 10 },
        { rate: 159, batch: 9 },
      ]),
    ).toBeUndefined()
  })
})
