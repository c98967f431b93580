import { readFileSync } from 'node:fs'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { REJECTS, type Reject } from './counts.ts'
import { readRoutedExperts } from './routed-experts.ts'

interface Case {
  name: string
  value: unknown
  expected: {
    layers: number
    experts: number
    top_k: number
    min_covered: number
    prompt_tokens: number
    half_life?: number
  }
  result: { reject: Reject } | { counts: number[]; recent?: number[]; tokens: number; covered: number }
}
const { experts } = JSON.parse(
  readFileSync(new URL('../../test/golden/wire/vectors.json', import.meta.url), 'utf8'),
) as { experts: Case[] }

const EXPECTED = { layers: 2, experts: 4, topK: 2, minCovered: 0.5, promptTokens: 6 }

/** A .npy file [rows, 2, 2] of bytes. */
function npy(
  rows: number,
  ids: Uint8Array,
  header = `{'descr': '|u1', 'fortran_order': False, 'shape': (${rows}, 2, 2), }`,
): string {
  const head = Buffer.from(`\x93NUMPY\x01\x00\x00\x00${header.padEnd(117)}\n`, 'latin1')
  head.writeUInt16LE(head.length - 10, 8)
  return Buffer.concat([head, ids]).toString('base64')
}

describe('vLLM’s routed experts, as NumPy writes them', () => {
  it.each(experts)('are counted or rejected: $name', ({ value, expected, result }) => {
    const { top_k, min_covered, prompt_tokens, half_life, ...shape } = expected
    const read = readRoutedExperts(value, {
      ...shape,
      topK: top_k,
      minCovered: min_covered,
      promptTokens: prompt_tokens,
      recentHalfLife: half_life,
    })
    // Exact except for recent counts, which are sums of powers.
    const rounded = (values: Iterable<number>) => Array.from(values, value => Math.round(value * 1e5))
    const plain = (it: typeof read | typeof result) =>
      'reject' in it ? it : { ...it, counts: [...it.counts], recent: it.recent && rounded(it.recent) }
    expect(plain(read)).toEqual(plain(result))
  })
})

describe('reading routed experts', () => {
  it('keeps counts beyond 16 bits in proportion', () => {
    const rows = 70_000
    const ids = new Uint8Array(rows * 4)
    for (let row = 0; row < rows; row++) ids.set(row < 10 ? [0, 1, 1, 2] : [0, 3, 1, 2], row * 4)
    const read = readRoutedExperts(npy(rows, ids), { ...EXPECTED, promptTokens: rows })
    expect('reject' in read ? read.reject : [...read.counts]).toEqual([
      35_000, 5, 0, 34_995, 0, 35_000, 35_000, 0,
    ])
  })

  it('never throws, whatever a worker sends', () => {
    const answers = (value: unknown) => {
      const read = readRoutedExperts(value, { ...EXPECTED, recentHalfLife: 8 })
      expect('reject' in read ? REJECTS.includes(read.reject) : read.covered >= 3).toBe(true)
    }
    fc.assert(fc.property(fc.jsonValue(), answers))
    fc.assert(fc.property(fc.base64String({ maxLength: 3000 }), answers))
    const ids = fc.uint8Array({ minLength: 24, maxLength: 24, max: 5 })
    fc.assert(fc.property(ids, list => answers(npy(6, list))))
    fc.assert(
      fc.property(ids, fc.string({ maxLength: 100 }), (list, header) => answers(npy(6, list, header))),
    )
  })

  it('cannot allocate more than the length of the text', () => {
    const before = process.memoryUsage().arrayBuffers
    for (const shape of ['(2000000000, 2, 2)', '(4000000000, 2, 2)', '(9999999999, 2, 2)'])
      expect(
        readRoutedExperts(
          npy(6, new Uint8Array(24), `{'descr': '<i8', 'fortran_order': False, 'shape': ${shape}, }`),
          EXPECTED,
        ),
      ).toEqual({ reject: 'bad_base64' })
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(1e6)
  })
})
