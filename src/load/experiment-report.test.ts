import { describe, expect, it } from 'vitest'
import type { MeasuredSlot } from '../sim/switchback-analysis.ts'
import { cautionsOf, comparisonsOf } from './experiment-report.ts'

interface Values {
  readonly tpot?: number
  readonly ttft?: number
}
const none = { p50: null, p99: null }
const times = (value: number | undefined) =>
  value === undefined ? none : { p50: value, p99: 2 * value + 0.01 * value }
/** Slots of a and b in turn, with a little noise. */
const slotsOf = (a: Values, b: Values, streams = 500): MeasuredSlot[] =>
  Array.from({ length: 16 }, (_, at) => {
    const { tpot, ttft } = at % 2 === 0 ? a : b
    const noise = 1 + 0.01 * Math.sin(7 * at)
    return {
      policy: at % 2 === 0 ? 'a' : 'b',
      seconds: 7,
      streams: tpot === undefined ? 0 : streams,
      tpotMs: times(tpot && tpot * noise),
      ttftMs: times(ttft && ttft * noise),
      requestsPerSecond: 50,
      outputTokensPerSecond: 1_000 * noise,
    }
  })
const compared = (slots: MeasuredSlot[]) => comparisonsOf(['a', 'b'], slots)[0]!

describe('the words of an experiment', () => {
  it('say that a policy is better', () => {
    const { outcome, words } = compared(slotsOf({ tpot: 20, ttft: 50 }, { tpot: 18, ttft: 50 }))
    expect(outcome).toBe('better')
    expect(words).toMatch(/^b is better than a\. TPOT p50 is 10\.\d % lower/)
  })

  it('do not say better if TTFT is far worse', () => {
    const { outcome, words } = compared(slotsOf({ tpot: 20, ttft: 50 }, { tpot: 18, ttft: 90 }))
    expect(outcome).toBe('mixed')
    expect(words).toMatch(/better in TPOT p50, TPOT p99 and worse in TTFT p50, TTFT p99\./)
  })

  it('say that only another figure differs', () => {
    const { outcome, words } = compared(slotsOf({ tpot: 20, ttft: 50 }, { tpot: 20, ttft: 90 }))
    expect(outcome).toBe('mixed')
    expect(words).toContain('No difference in TPOT was found, but it is worse in TTFT p50, TTFT p99.')
  })

  it('say that TPOT was not measured, and not that there is no difference', () => {
    const slots = slotsOf({}, {})
    const comparison = compared(slots)
    expect(comparison.outcome).toBe('unmeasured')
    expect(comparison.words).toMatch(/^TPOT of b and a was not measured/)
    expect(comparison.words).not.toContain('No difference')
    const cautions = cautionsOf([comparison], slots)
    for (const figure of ['TPOT p50', 'TPOT p99', 'TTFT p50', 'TTFT p99'])
      expect(cautions.filter(caution => caution.startsWith(`${figure} was not measured`))).toHaveLength(1)
    expect(cautions.join()).not.toContain('tokens/s')
  })

  it('caution if nothing at all is compared, or slots have few streams', () => {
    expect(cautionsOf(comparisonsOf(['a', 'b'], []), [])).toEqual([
      'fewer than two blocks have traffic of all policies: nothing is compared',
    ])
    const slots = slotsOf({ tpot: 20, ttft: 50 }, { tpot: 18, ttft: 50 }, 12)
    expect(cautionsOf([compared(slots)], slots).join()).toContain('12 streams only')
  })
})
