import { describe, expect, it } from 'vitest'
import { isWrongRank } from './wrong-rank.ts'

const body = (value: unknown) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value))
const message = 'data_parallel_rank 3 is out of range [0, 3).'

describe('isWrongRank', () => {
  it('is true for vLLM’s message, at the top level or in error', () => {
    expect(isWrongRank(3, 400, body({ error: { message, code: 400 } }))).toBe(true)
    expect(isWrongRank(3, 400, body({ message }))).toBe(true)
  })

  it.each([
    ['another rank', 2, 400, { error: { message } }],
    ['a worker without a rank', undefined, 400, { error: { message } }],
    ['another status', 3, 422, { error: { message } }],
    [
      'a message that quotes the client',
      3,
      400,
      { error: { message: `prompt: expected text, found ${message}` } },
    ],
    ['a body that is not JSON', 3, 400, message],
    ['a null body', 3, 400, 'null'],
    ['a message that is not a string', 3, 400, { error: { message: 3 } }],
    ['a long body', 3, 400, { error: { message, more: 'a'.repeat(5_000) } }],
  ])('is false for %s', (_, dpRank, status, response) => {
    expect(isWrongRank(dpRank, status, body(response))).toBe(false)
  })
})
