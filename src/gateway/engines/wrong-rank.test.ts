import { describe, expect, it } from 'vitest'
import { isWrongRank } from './wrong-rank.ts'

const body = (value: unknown) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value))
const words = 'data_parallel_rank 3 is out of range [0, 3).'

describe('an answer that a rank is not there', () => {
  it('is one by its first words, in both places where servers put them', () => {
    expect(isWrongRank(3, 400, body({ error: { message: words, code: 400 } }))).toBe(true)
    expect(isWrongRank(3, 400, body({ message: words }))).toBe(true)
  })

  it.each([
    ['of another rank', 2, 400, { error: { message: words } }],
    ['of a worker without a rank', undefined, 400, { error: { message: words } }],
    ['of another status', 3, 422, { error: { message: words } }],
    [
      'that quotes what a client sent',
      3,
      400,
      { error: { message: `prompt: expected text, found ${words}` } },
    ],
    ['that is no JSON', 3, 400, words],
    ['that is nothing', 3, 400, 'null'],
    ['that is no text', 3, 400, { error: { message: 3 } }],
    ['that is long', 3, 400, { error: { message: words, more: 'a'.repeat(5_000) } }],
  ])('is not one %s', (_, dpRank, status, answer) => {
    expect(isWrongRank(dpRank, status, body(answer))).toBe(false)
  })
})
