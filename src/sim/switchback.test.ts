/** A small version of bench/experiment.mjs: simulated experiments, analysed as `eldr experiment` does. */
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { prepare } from './switchback.ts'
import { effectsOf, isFound } from './switchback-analysis.ts'

const trace = fileURLToPath(new URL('../../data/lab16-task.evaluation.safetensors', import.meta.url))
const data = { trace, profile: 'h200-first', topology: '2P4D', slotSeconds: 4, washoutSeconds: 1, slots: 8 }
const seeds = (count: number) => Array.from({ length: count }, (_, at) => at + 1)

describe('a simulated experiment', () => {
  it('rarely finds a difference between a policy and itself', async () => {
    const run = await prepare(data)
    let found = 0
    for (const seed of seeds(16)) {
      const slots = await run({ policies: ['jsq', 'jsq'], arrivals: 'poisson', rate: 100, seed })
      expect(slots.map(({ streams }) => streams > 100)).toEqual(Array(8).fill(true))
      found += effectsOf(slots, 2, 'jsq', 'jsq#2').filter(
        effect => effect.figure === 'TPOT p50' && isFound(effect),
      ).length
    }
    // 0.8 expected; more than 3 have a chance of 1 in 100 if the intervals are right.
    expect(found).toBeLessThanOrEqual(3)
  })

  it('finds that union has a lower TPOT than jsq', async () => {
    const run = await prepare({ ...data, slots: 16 })
    let found = 0
    for (const seed of seeds(3)) {
      const slots = await run({ policies: ['jsq', 'union'], arrivals: 'poisson', rate: 100, seed })
      const [p50] = effectsOf(slots, 2, 'jsq', 'union')
      expect(p50!.figure).toBe('TPOT p50')
      if (p50!.high < 0) found++
    }
    expect(found).toBeGreaterThanOrEqual(2)
  })

  it('is the same for the same seed', async () => {
    const run = await prepare({ ...data, slots: 2 })
    const job = { policies: ['jsq', 'union'], arrivals: 'gamma', rate: 80, seed: 9 } as const
    expect(await run(job)).toEqual(await run(job))
    expect((await run({ ...job, seed: 10 })).map(({ tpotMs }) => tpotMs)).not.toEqual(
      (await run(job)).map(({ tpotMs }) => tpotMs),
    )
  })
})
