import { describe, expect, it } from 'vitest'
import { failure } from '../../test/trace-support.ts'
import { parseWorkload, readWorkload } from './recorded-workload.ts'

const azure = `TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:59.9799600,4808,10
2023-11-16 18:18:00.0319600,3180,0
`
const mooncake = `{"timestamp": 40, "input_length": 1300, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 43.5, "input_length": 600, "output_length": 3, "hash_ids": [0, 7]}
`

describe('a recorded workload', () => {
  it('reads the Azure traces: times to the microsecond, lengths of at least one token', () => {
    const { source, timesUs, promptTokens, outputTokens, prefixes } = parseWorkload('some/azure.csv', azure)
    expect(source).toBe('azure.csv')
    expect(timesUs[0]).toBe(0)
    expect(timesUs[1]).toBeCloseTo(52_000, 0)
    expect([Array.from(promptTokens), Array.from(outputTokens)]).toEqual([
      [4808, 3180],
      [10, 1],
    ])
    expect(prefixes).toBeUndefined()
  })

  it('reads the Mooncake traces, with the whole blocks of each prompt', () => {
    const { timesUs, promptTokens, prefixes } = parseWorkload('m.jsonl', mooncake)
    expect(Array.from(timesUs)).toEqual([0, 3_500])
    expect(Array.from(promptTokens)).toEqual([1300, 600])
    expect(prefixes).toEqual({
      blockTokens: 512,
      starts: Int32Array.of(0, 2, 3),
      ids: Int32Array.of(0, 1, 0),
    })
  })

  it('cuts lengths and blocks to the caps', () => {
    const { promptTokens, outputTokens, prefixes } = parseWorkload('m.jsonl', mooncake, {
      promptTokens: 1_000,
      outputTokens: 16,
    })
    expect([Array.from(promptTokens), Array.from(outputTokens)]).toEqual([
      [1000, 600],
      [16, 3],
    ])
    expect(prefixes!.ids).toEqual(Int32Array.of(0, 0))
  })

  it.each([
    ['', 'line 1'],
    ['a,b\n1,2\n', 'line 1'],
    ['TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2', 'line 2'],
    [`${azure}2023-11-16 18:17:00.0,1,1`, 'line 4'],
    ['{"timestamp": 1, "input_length": 2}', 'line 1'],
    ['{"timestamp": 1, "input_length": 2, "output_length": 1, "hash_ids": ["x"]}', 'line 1'],
    ['null', 'line 1'],
  ])('rejects what it cannot read and names the line: %j', async (text, place) => {
    const error = await failure('w.txt', () => parseWorkload('w.txt', text))
    expect(error.code).toBe('ELDR_FILE_WRONG_KIND')
    expect(error.message).toContain(place)
  })

  it('reports a missing file', async () => {
    expect((await failure('nowhere.csv', () => readWorkload('nowhere.csv'))).code).toBe(
      'ELDR_FILE_UNREADABLE',
    )
  })
})
