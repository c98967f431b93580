import { describe, expect, it } from 'vitest'
import type { SimulationResult } from '../sim/result.ts'
import { meanChange, type Point, tpotP50 } from './cells.ts'
import { rounded } from './rounded.ts'
import { change, fewer, listed, outOf, range, signedPercent, span } from './words.ts'

const plain = (text: string) => text.replaceAll('\u00a0', ' ')

describe('phrases of findings', () => {
  it('give changes a sign and order them from lowest to highest', () => {
    expect(plain(signedPercent(0.0123))).toBe('+1.2 %')
    expect(plain(signedPercent(0.0001))).toBe('0.0 %')
    expect(plain(span([-0.105, -0.129, -0.11]))).toBe('−12.9 to −10.5 %')
    expect(plain(span([0.01, 0.01]))).toBe('+1.0 %')
    expect(range([3, 1, 2], 0)).toBe('1 to 3')
  })

  it('say fewer or more, and give both signs for a mixed range', () => {
    expect(plain(fewer(-0.1))).toBe('10.0 % fewer')
    expect(plain(fewer(-0.07, -0.089))).toBe('7.0 to 8.9 % fewer')
    expect(plain(fewer(0.02))).toBe('2.0 % more')
    expect(plain(fewer(-0.02, 0.01))).toBe('−2.0 to +1.0 % more')
  })

  it('list names and counts in words', () => {
    expect([listed([]), listed(['a']), listed(['a', 'b', 'c'])]).toEqual(['none', 'a', 'a, b and c'])
    expect([outOf(8, 8), outOf(3, 8), outOf(0, 8)]).toEqual(['all 8', '3 of the 8', 'none of the 8'])
  })

  it('leave out an unknown interval', () => {
    expect(change({ mean: -0.1, half: NaN, count: 1 })).toEqual({
      value: -10,
      digits: 1,
      unit: '%',
      signed: true,
    })
    expect(change(undefined)).toBeNull()
  })
})

describe('a mean change over rates', () => {
  const point = (p50s: readonly number[]): Point => ({
    variant: 'x',
    rate: 1,
    runs: p50s.map(p50 => ({ tpotMs: { p50 } }) as SimulationResult),
  })

  it('is paired by seed, and its interval is over seeds', () => {
    const pairs = [
      { base: point([10, 20]), point: point([9, 16]) },
      { base: point([100, 100]), point: point([100, 90]) },
    ]
    const { mean, count } = meanChange(pairs, tpotP50)
    expect(mean).toBeCloseTo((-0.1 + 0 + (-0.2 - 0.1)) / 4, 12)
    expect(count).toBe(2)
  })
})

describe('rounding a report', () => {
  it('keeps five digits of every number and nothing else changes', () => {
    const report = {
      title: '1.23456789',
      intro: '',
      facts: [],
      footer: '',
      sections: [{ title: 's', exhibits: [] }],
    }
    expect(rounded(report)).toEqual(report)
    const number = { value: 1.23456789, digits: 2, half: 123456789 }
    const exhibit = {
      id: 'a',
      title: '',
      finding: '',
      source: '',
      charts: [],
      tables: [{ columns: ['a'], rows: [[number, null, 'x']] }],
    }
    const { sections } = rounded({ ...report, sections: [{ title: 's', exhibits: [exhibit] }] })
    expect(sections[0]!.exhibits[0]!.tables[0]!.rows[0]).toEqual([
      { value: 1.2346, digits: 2, half: 123460000 },
      null,
      'x',
    ])
  })
})
