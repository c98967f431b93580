import { describe, expect, it } from 'vitest'
import { whyMissed } from './misses.ts'
import { prototypeFigures } from './prototype-figures.ts'
import { fixed, percent, shown } from './rounded.ts'
import {
  ALL_TARGETS,
  fromPrototype,
  type Judged,
  KEEPS_MEDIAN,
  LOWERS_TAIL,
  OWN_TARGETS,
  targetTable,
  verdicts,
} from './targets.ts'
import { signedPercent } from './words.ts'

const plain = (text: string) => text.replaceAll('\u00a0', ' ')
const of = (mean: number, half = 0.5) => ({ mean, half, count: 3 })

/** Language mix at batch 35, where the prototype has −10.2 and +5.7 for band, −9.7 and −6.4 for union. */
function judged(change: Partial<Judged> = {}): Judged {
  return {
    workload: 'lang',
    batch: 35,
    band: { p50: of(-10), p99: of(5) },
    union: { p50: of(-10), p99: of(-7) },
    unionAll: -10.1,
    unionTrue: -11,
    prototype: { band: prototypeFigures('lang', 35, 'band')!, union: prototypeFigures('lang', 35, 'union')! },
    inflight: 500,
    rows: 800,
    calibration: 1000,
    ...change,
  }
}
const words = (one: Judged) => ALL_TARGETS.map(({ verdict }) => verdict(one))
const settings = (one: Judged) => {
  const judgement = { setting: 'With prefill (8P16D)', judged: [one] }
  return {
    withPrefill: judgement,
    alone: { ...judgement, setting: 'As run' },
    onMeasured: { ...judgement, setting: 'On x' },
  }
}

describe('targets', () => {
  it('have no explanation when they are met', () => {
    expect(words(judged())).toEqual(['met', 'met', 'met', 'met', 'met'])
    expect(whyMissed(settings(judged()))).toEqual([])
  })

  it('measure the distance to the nearer end of the prototype’s range and allow 2 points', () => {
    const task = {
      prototype: {
        band: prototypeFigures('task', 20, 'band')!,
        union: prototypeFigures('task', 20, 'union')!,
      },
    }
    const at = (p50: number, p99: number) => judged({ ...task, band: { p50: of(p50), p99: of(p99) } })
    const distance = (one: Judged) => [fromPrototype(one, 'p50'), fromPrototype(one, 'p99')]
    expect(distance(at(-11, 2))).toEqual([0, 0])
    expect(distance(at(-14.94, 5.34))).toEqual([-2, 2])
    expect(words(at(-14.94, 5.34)).slice(0, 2)).toEqual(['met', 'met'])
    expect(words(at(-14.96, 5.36)).slice(0, 2)).toEqual(['lower', 'higher'])
  })

  it('are checked against the numbers as tables print them', () => {
    const near = judged({ union: { p50: of(-8.9952), p99: of(0.004) } })
    expect([LOWERS_TAIL.verdict(near), KEEPS_MEDIAN.verdict(near)]).toEqual(['met', 'met'])
    const past = judged({ union: { p50: of(-8.99), p99: of(0.01) } })
    expect([LOWERS_TAIL.verdict(past), KEEPS_MEDIAN.verdict(past)]).toEqual(['missed', 'missed'])
    expect(KEEPS_MEDIAN.verdict({ ...past, batch: 10 })).toBe('met')
  })

  it('are named and explained where they are missed', () => {
    const missed = judged({
      band: { p50: of(-12.4, 0.1), p99: of(-3, 9) },
      union: { p50: of(-9), p99: of(-7) },
      inflight: 900,
    })
    const judgement = { setting: 'With prefill (8P16D)', judged: [judged(), missed] }
    expect(verdicts(judgement, ALL_TARGETS)).toContain('prototype’s: 1 of the 2 (missed: lang 35 lower)')
    expect(verdicts(judgement, OWN_TARGETS)).toMatch(
      /^With prefill \(8P16D\), loads that meet each target: union’s p99 .*\(missed: lang 35\)\.$/,
    )
    const { columns, rows } = targetTable(judgement, ALL_TARGETS)
    for (const row of rows) expect(row).toHaveLength(columns.length)
    const notes = whyMissed(settings(missed)).map(plain)
    expect(notes).toHaveLength(4)
    expect(notes[0]).toContain(
      'All of these 4 are lower than the prototype’s: better, but still outside the target',
    )
    expect(notes[0]).toContain('in 2 of the 4')
    expect(notes[1]).toContain('of the gain with true patterns (81.8 %)')
    expect(notes[2]).toContain('band −3.0 % (prototype +5.7), union −7.0 % (prototype −6.4)')
    expect(notes[3]).toContain('Up to 900 requests are in flight and the trace has 800 rows')
    expect(notes.join('')).not.toMatch(/NaN|undefined|–(?!\d)/)
  })
})

describe('numbers of findings', () => {
  it('are rounded as in tables', () => {
    expect(Number((9.850002).toPrecision(5)).toFixed(1)).toBe('9.8')
    expect([fixed(9.850002, 1), plain(signedPercent(0.09850002)), shown(9.850002, 1)]).toEqual([
      '9.8',
      '+9.8 %',
      9.8,
    ])
    expect(plain(percent(0.125000001))).toBe('13 %')
  })
})
