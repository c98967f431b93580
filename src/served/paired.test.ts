import { describe, expect, it } from 'vitest'
import { runOf } from '../../test/served-support.ts'
import { changeOf, expertsAtEqualBatch, meanOf, policiesOf } from './paired.ts'

const runs = [
  runOf('jsq', 0, 10, 40),
  runOf('eldr', 0, 9, 36),
  runOf('eldr', 1, 18, 36),
  runOf('jsq', 1, 20, 40),
  runOf('eldr', 2, 100, 36), // a round without jsq
]
const p50 = (run: { tpotMs: { p50: number } }) => run.tpotMs.p50

describe('policies compared round by round', () => {
  it('against jsq of the same round, and only there', () => {
    const change = changeOf(runs, 'eldr', p50)!
    expect(change.count).toBe(2)
    expect(change.mean).toBeCloseTo(-0.1, 12)
    expect(change.half).toBeCloseTo(0, 12)
    expect(changeOf(runs, 'union', p50)).toBeUndefined()
  })

  it('have an interval that is that of the differences, not of the rounds', () => {
    const other = [
      runOf('jsq', 0, 10, 40),
      runOf('eldr', 0, 9, 36),
      runOf('jsq', 1, 40, 40),
      runOf('eldr', 1, 35.2, 36),
    ]
    const { mean, half } = changeOf(other, 'eldr', p50)!
    expect(mean).toBeCloseTo(-0.11, 12)
    expect(half).toBeCloseTo((12.706 * 0.02) / 2, 6) // ±0.01 around the mean: s = 0.01·√2, /√2
  })

  it('in order of their first run, with means over their rounds', () => {
    expect(policiesOf(runs)).toEqual(['jsq', 'eldr'])
    expect(meanOf(runs, 'jsq', p50)).toBe(15)
  })
})

describe('experts at equal batch', () => {
  it('are compared batch by batch, weighted by the fewer steps', () => {
    const base = {
      ...runOf('jsq', 0, 10, 40),
      byBatch: { batch: [4, 8, 9], steps: [100, 30, 500], experts: [20, 40, 41] },
    }
    const other = {
      ...runOf('eldr', 0, 9, 36),
      byBatch: { batch: [4, 8, 10], steps: [20, 60, 500], experts: [18, 38, 39] },
    }
    // Batch 4: −10 % of 20 steps; batch 8: −5 % of 30; 9 and 10 have no partner.
    expect(expertsAtEqualBatch([base, other], 'eldr')).toBeCloseTo((20 * -0.1 + 30 * -0.05) / 50, 12)
  })

  it('come from recorded steps if they were not counted, and are left out if too few', () => {
    const of = (policy: string, experts: number, count: number) => ({
      ...runOf(policy, 0, 10, experts),
      byBatch: undefined,
      steps: {
        ms: Array<number>(count).fill(10),
        batch: Array<number>(count).fill(8),
        experts: Array<number>(count).fill(experts),
      },
    })
    expect(expertsAtEqualBatch([of('jsq', 40, 30), of('eldr', 38, 25)], 'eldr')).toBeCloseTo(-0.05, 12)
    expect(expertsAtEqualBatch([of('jsq', 40, 30), of('eldr', 38, 19)], 'eldr')).toBeUndefined()
  })
})
