import { describe, expect, it } from 'vitest'
import { rangeInWords } from './fit-range.ts'

/** 30 steps of each batch, with these times and modelled times. */
function words(...batches: (readonly [batch: number, ms: number, modelledMs: number])[]) {
  const rows = batches.flatMap(one => Array.from({ length: 30 }, () => one))
  const column = (at: 0 | 1 | 2) => rows.map(one => one[at])
  return rangeInWords({ batch: column(0), ms: column(1), experts: column(0) }, column(2))
}

describe('the batches that a profile describes', () => {
  it('are not named if they are all', () => {
    expect(words([1, 2, 2.05], [8, 3, 2.9])).toBeUndefined()
  })

  it('are told from those that it does not', () => {
    expect(words([1, 2, 2.7], [4, 3, 2.7], [8, 3, 3], [16, 4, 3.92])).toBe(
      'The median step is modelled more than 5\u00a0% off at batches of 1 (+35\u00a0%), 4 (−10\u00a0%); the others, 8 to 16, are within 2.0\u00a0%.',
    )
  })

  it('may be none', () => {
    expect(words([1, 2, 2.7])).toBe(
      'The median step is modelled more than 5\u00a0% off at batches of 1 (+35\u00a0%).',
    )
  })
})
