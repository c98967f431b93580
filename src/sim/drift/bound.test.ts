import { describe, expect, it } from 'vitest'
import type { SimulationResult } from '../result.ts'
import { type DriftPoint, figuresOf, keepsBound, verdictOf, worstOf } from './bound.ts'
import type { Traffic } from './drift-runs.ts'
import { SCENARIOS } from './scenario.ts'

const traffic = { name: 'task' } as Traffic

/** A point whose runs have these times, one per seed. */
function point(
  variant: string,
  times: readonly (readonly [p50: number, p99: number])[],
  rate = 1,
): DriftPoint {
  const runs = times.map(([p50, p99]) => ({ tpotMs: { p50, p99 }, batch: 8, preemptions: 2 }))
  return {
    cell: { scenario: SCENARIOS[0]!, traffic, rate, variant },
    variant,
    rate,
    runs: runs as unknown as SimulationResult[],
  }
}
const base = point('jsq', [
  [10, 20],
  [12, 30],
])
/** The policy's times are those of the baseline, changed by these shares. */
const changed = (p50: number, p99: number) =>
  point('union', [
    [10 * (1 + p50), 20 * (1 + p99)],
    [12 * (1 + p50), 30 * (1 + p99)],
  ])

describe('the bound', () => {
  it('compares with jsq seed by seed, in the same scenario, traffic and rate', () => {
    const [first, second] = figuresOf([
      base,
      changed(-0.1, 0.02),
      point(
        'jsq',
        [
          [1, 1],
          [1, 1],
        ],
        2,
      ),
    ])
    expect(first).toMatchObject({
      policy: 'jsq',
      p50: { mean: 11 },
      p99: { mean: 25 },
      batch: 8,
      preemptions: 2,
    })
    expect([first!.p50Change, first!.p99Change]).toEqual([undefined, undefined])
    expect(second!.p50Change!.mean).toBeCloseTo(-0.1, 12)
    expect(second!.p50Change!.half).toBeCloseTo(0, 9)
    expect(second!.p99Change!.mean).toBeCloseTo(0.02, 12)
  })

  it('is +1 % of p50 and +3 % of p99, means over seeds', () => {
    const verdict = (p50: number, p99: number) => keepsBound(figuresOf([base, changed(p50, p99)])[1]!)
    expect(verdict(0.0099, 0.0299)).toBe(true)
    expect(verdict(0.0101, 0)).toBe(false)
    expect(verdict(-0.2, 0.0301)).toBe(false)
    expect(keepsBound(figuresOf([base])[0]!)).toBeUndefined()
    const mixed = point('union', [
      [10.3, 20],
      [11.7, 30],
    ])
    expect(keepsBound(figuresOf([base, mixed])[1]!)).toBe(true)
  })

  it('holds for a policy if it holds in its worst cell', () => {
    const [, good] = figuresOf([base, changed(-0.1, 0)])
    const [, bad] = figuresOf([base, changed(0, 0.2)])
    expect(worstOf([good!, bad!])!.p50Change.mean).toBeCloseTo(0, 12)
    expect([verdictOf([good!]), verdictOf([good!, bad!]), verdictOf([])]).toEqual([
      'met',
      'missed',
      undefined,
    ])
  })
})
