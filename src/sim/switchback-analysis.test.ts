import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { slotOrder } from '../math/switchback.ts'
import { type Effect, effectsOf, isFound, type MeasuredSlot, outcomeOf } from './switchback-analysis.ts'

const slot = (policy: string, p50: number | null, p99 = p50): MeasuredSlot => ({
  policy,
  seconds: 7,
  streams: 100,
  ttftMs: { p50: 20, p99: 40 },
  tpotMs: { p50, p99 },
  requestsPerSecond: 50,
  outputTokensPerSecond: 1_000,
})
const byName = (effects: readonly Effect[], name: string) => effects.find(({ figure }) => figure === name)!

describe('the effect of a policy', () => {
  it('is the mean ratio within blocks, whatever their order and level', () => {
    const blocks = [
      [slot('a', 10), slot('b', 9)],
      [slot('b', 18), slot('a', 20)],
      [slot('a', 40), slot('b', 36)],
    ]
    const slots = blocks.flat()
    const {
      base,
      other,
      change,
      low,
      high,
      blocks: compared,
    } = byName(effectsOf(slots, 2, 'a', 'b'), 'TPOT p50')
    expect(change).toBeCloseTo(-0.1, 10)
    expect([low, high].map(value => Number(value.toFixed(10)))).toEqual([-0.1, -0.1])
    expect([base, other, compared]).toEqual([expect.closeTo(20), expect.closeTo(18), 3])
    expect(byName(effectsOf(slots, 2, 'a', 'b'), 'TTFT p99').change).toBe(0)
  })

  it('has an interval of Student over the blocks, on the log scale', () => {
    const ratios = [0.8, 0.9, 1, 0.85]
    const slots = ratios.flatMap(ratio => [slot('a', 10), slot('b', 10 * ratio)])
    const { change, low, high } = byName(effectsOf(slots, 2, 'a', 'b'), 'TPOT p50')
    const logs = ratios.map(Math.log)
    const mean = logs.reduce((a, b) => a + b) / 4
    const deviation = Math.sqrt(logs.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 3)
    expect(Math.log(1 + change)).toBeCloseTo(mean, 10)
    expect(Math.log(1 + high)).toBeCloseTo(mean + (3.182 * deviation) / 2, 10)
    expect(Math.log(1 + low)).toBeCloseTo(mean - (3.182 * deviation) / 2, 10)
  })

  it('leaves out blocks without streams, and figures of fewer than two blocks', () => {
    const slots = [slot('a', 10), slot('b', null), slot('b', 9), slot('a', 10), slot('a', 10), slot('b', 8)]
    expect(byName(effectsOf(slots, 2, 'a', 'b'), 'TPOT p50').blocks).toBe(2)
    expect(byName(effectsOf(slots.slice(0, 4), 2, 'a', 'b'), 'TPOT p50')).toBeUndefined()
    expect(effectsOf([], 2, 'a', 'b')).toEqual([])
  })

  it('compares each of three policies with the base', () => {
    const slots = [1, 2, 3].flatMap(level => [
      slot('c', 30 * level),
      slot('a', 10 * level),
      slot('b', 20 * level),
    ])
    expect(byName(effectsOf(slots, 3, 'a', 'b'), 'TPOT p50').change).toBeCloseTo(1)
    expect(byName(effectsOf(slots, 3, 'a', 'c'), 'TPOT p50').change).toBeCloseTo(2)
  })
})

describe('the interval', () => {
  /** Slots of equal policies with a drift, noise that the next slot inherits, and now and then an outlier. */
  function nullSlots(seed: number, blocks: number): MeasuredSlot[] {
    const random = createRandom(seed)
    const normal = () =>
      Math.sqrt(-2 * Math.log(1 - random.uniform())) * Math.cos(2 * Math.PI * random.uniform())
    let carried = 0
    return slotOrder(['a', 'b'], blocks, random.fork(1)).map((policy, at) => {
      carried = 0.6 * carried + 0.05 * normal() * (random.uniform() < 0.05 ? 4 : 1)
      return slot(policy, 10 * Math.exp(carried + 0.02 * at))
    })
  }

  it('contains 0 in 92 to 98 of 100 experiments of a policy against itself, with drift and carry-over', () => {
    const runs = 2_000
    let covers = 0
    for (let seed = 0; seed < runs; seed++)
      if (!isFound(byName(effectsOf(nullSlots(seed, 10), 2, 'a', 'b'), 'TPOT p50'))) covers++
    expect(covers / runs).toBeGreaterThan(0.92)
    expect(covers / runs).toBeLessThan(0.98)
  })

  it('shows blocks that depend on each other', () => {
    const slots = Array.from({ length: 40 }, (_, at) => [
      slot('a', 10),
      slot('b', 10 + Math.sin(at / 6)),
    ]).flat()
    expect(byName(effectsOf(slots, 2, 'a', 'b'), 'TPOT p50').lag1).toBeGreaterThan(0.9)
  })
})

describe('the outcome', () => {
  const effect = (figure: Effect['figure'], change: number, p: number) =>
    ({ figure, change, p }) as unknown as Effect
  const [none, clear] = [0.5, 0.001]
  type Found = readonly [change: number, p: number]
  it.each<readonly [string, Found, Found, Found]>([
    ['better', [-0.1, clear], [0.01, none], [0.02, none]],
    ['better', [-0.1, clear], [-0.1, clear], [-0.2, clear]],
    ['worse', [0.1, clear], [-0.1, none], [-0.2, clear]],
    ['mixed', [-0.1, clear], [0.1, clear], [0, none]],
    ['mixed', [-0.1, clear], [-0.1, clear], [0.4, clear]],
    ['mixed', [-0.1, none], [-0.1, none], [0.4, clear]],
    ['undecided', [-0.1, none], [-0.1, none], [-0.4, clear]],
    // Of two figures, one has an interval of 95 % without 0 in about one of ten experiments.
    ['undecided', [-0.1, 0.03], [-0.1, 0.04], [0.4, 0.01]],
  ])('is %s', (outcome, p50, p99, ttft) => {
    expect(
      outcomeOf([effect('TPOT p50', ...p50), effect('TPOT p99', ...p99), effect('TTFT p50', ...ttft)]),
    ).toBe(outcome)
  })

  it('is mixed if throughput is lower, not if it is higher', () => {
    const tpot = [effect('TPOT p50', -0.1, clear), effect('TPOT p99', -0.1, clear)]
    expect(outcomeOf([...tpot, effect('output tokens/s', -0.1, clear)])).toBe('mixed')
    expect(outcomeOf([...tpot, effect('output tokens/s', 0.1, clear)])).toBe('better')
  })

  it('is unmeasured without TPOT', () => {
    expect(outcomeOf([effect('output tokens/s', 0, none)])).toBe('unmeasured')
    expect(outcomeOf([])).toBe('unmeasured')
  })

  it('is a verdict in at most about 5 of 100 experiments of a policy against itself', () => {
    let verdicts = 0
    for (let seed = 0; seed < 2_000; seed++) {
      const random = createRandom(seed)
      const noise = () => 10 * Math.exp(0.05 * (random.uniform() + random.uniform() + random.uniform()))
      const slots = Array.from({ length: 20 }, (_, at) => slot(at % 2 === 0 ? 'a' : 'b', noise(), noise()))
      if (outcomeOf(effectsOf(slots, 2, 'a', 'b')) !== 'undecided') verdicts++
    }
    expect(verdicts / 2_000).toBeLessThan(0.05)
    expect(verdicts / 2_000).toBeGreaterThan(0.025)
  })
})
