import { readFileSync } from 'node:fs'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type CapturedCounts,
  decodeCounts,
  encodeCounts,
  MAX_HALF_LIFE,
  readHandoffCounts,
  REJECTS,
  type Reject,
} from './counts.ts'

interface Shape {
  layers: number
  experts: number
  top_k: number
}
interface Vectors {
  encode: (Shape & {
    name: string
    tokens: number
    covered: number
    counts: number[]
    recent?: number[]
    half_life?: number
    payload: unknown
  })[]
  decode: {
    name: string
    value: unknown
    expected: Shape & { min_covered: number; half_life?: number }
    result: { reject: Reject } | { counts: number[]; recent?: number[]; tokens: number; covered: number }
  }[]
}
const vectors = JSON.parse(
  readFileSync(new URL('../../test/golden/wire/vectors.json', import.meta.url), 'utf8'),
) as Vectors

const EXPECTED = { layers: 2, experts: 4, topK: 2, minCovered: 0.5 }

/** Counts of a worker that saw these tokens: [tokens][layers] of two different experts. */
const captured = fc
  .array(
    fc.array(fc.shuffledSubarray([0, 1, 2, 3], { minLength: 2, maxLength: 2 }), {
      minLength: 2,
      maxLength: 2,
    }),
    {
      minLength: 1,
      maxLength: 60,
    },
  )
  .map((tokens): CapturedCounts => {
    const counts = new Uint32Array(8)
    const recent = new Float64Array(8)
    tokens.forEach((layers, t) =>
      layers.forEach((ids, l) =>
        ids.forEach(id => {
          counts[l * 4 + id]!++
          recent[l * 4 + id]! += 2 ** ((t + 1 - tokens.length) / 64)
        }),
      ),
    )
    return {
      ...EXPECTED,
      tokens: tokens.length,
      covered: tokens.length,
      counts,
      recent: { values: recent, halfLife: 64 },
    }
  })

describe('counts of a hand-off, as Python writes and reads them', () => {
  it.each(vectors.encode)('are written: $name', ({ top_k, recent, half_life, payload, ...rest }) => {
    const written = encodeCounts({
      ...rest,
      topK: top_k,
      recent: recent && { values: recent, halfLife: half_life! },
    })
    expect(written).toEqual(payload)
  })

  it.each(vectors.decode)('are read or rejected: $name', ({ value, expected, result }) => {
    const { top_k, min_covered, half_life, ...shape } = expected
    const read = readHandoffCounts(value, {
      ...shape,
      topK: top_k,
      minCovered: min_covered,
      recentHalfLife: half_life,
    })
    expect(
      'reject' in read
        ? read
        : { ...read, counts: [...read.counts], recent: read.recent && [...read.recent] },
    ).toEqual(result)
  })

  it('are rejected for every reason in the cases above', () => {
    const seen = new Set(vectors.decode.flatMap(({ result }) => ('reject' in result ? [result.reject] : [])))
    expect([...seen].toSorted()).toEqual(REJECTS.toSorted())
  })
})

describe('reading a hand-off', () => {
  it('returns what was written, through JSON', () => {
    fc.assert(
      fc.property(captured, seen => {
        const read = readHandoffCounts(JSON.parse(JSON.stringify(encodeCounts(seen))), {
          ...EXPECTED,
          recentHalfLife: 64,
        })
        if ('reject' in read) throw new Error(read.reject)
        expect([...read.counts]).toEqual([...(seen.counts as Uint32Array)])
        read.recent!.forEach((value, c) =>
          expect(Math.abs(value - seen.recent!.values[c]!)).toBeLessThanOrEqual(1 / 512),
        )
        expect({ tokens: read.tokens, covered: read.covered }).toEqual({
          tokens: seen.tokens,
          covered: seen.covered,
        })
      }),
    )
  })

  it('never throws, whatever a worker sends', () => {
    const answers = (value: unknown, expected = EXPECTED) => {
      const read = readHandoffCounts(value, { ...expected, recentHalfLife: 64 })
      expect('reject' in read ? REJECTS.includes(read.reject) : read.counts.length === 8).toBe(true)
    }
    fc.assert(fc.property(fc.jsonValue(), value => answers(value)))
    // A valid object with a few fields replaced gets further than a random value.
    const sound = captured.map(encodeCounts)
    const wild = fc.dictionary(
      fc.constantFrom(
        'v',
        'layers',
        'experts',
        'top_k',
        'tokens',
        'covered',
        'shift',
        'counts',
        'recent',
        'half_life',
      ),
      fc.oneof(fc.jsonValue(), fc.nat(), fc.base64String()),
    )
    fc.assert(fc.property(sound, wild, (object, fields) => answers({ ...object, ...fields })))
  })

  it('detects any single character that was changed, lost or added', () => {
    const character = fc.oneof(
      fc.string({ minLength: 1, maxLength: 1 }),
      fc.constantFrom('A', 'B', '=', '-', '_', ' ', '\u0141', '\0'),
    )
    fc.assert(
      fc.property(
        captured.map(encodeCounts),
        fc.nat(),
        fc.nat({ max: 1 }),
        fc.oneof(character, fc.constant('')),
        (object, place, taken, put) => {
          const at = place % object.counts.length
          const counts = object.counts.slice(0, at) + put + object.counts.slice(at + taken)
          const read = readHandoffCounts({ ...object, counts }, EXPECTED)
          // One digit is six bits: across two cells they have too different weights to cancel, so the sum of
          // the layer changes.
          expect('reject' in read ? read.reject : 'same').toBeOneOf(
            counts === object.counts ? ['same'] : ['bad_base64', 'bad_sums'],
          )
        },
      ),
    )
  })

  it('accepts every prompt length with the shift that its counts need', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 2 ** 31 - 1 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (tokens, share) => {
          const split = Math.round(tokens * share)
          const layer = [tokens, split, tokens - split, 0]
          const object = encodeCounts({ ...EXPECTED, tokens, covered: tokens, counts: [...layer, ...layer] })
          expect(object.shift).toBe(Math.max(0, Math.floor(Math.log2(tokens)) - 15))
          const read = readHandoffCounts(object, EXPECTED)
          expect('reject' in read ? read.reject : [...read.counts.subarray(0, 4)]).toEqual(
            layer.map(count => count >> object.shift),
          )
        },
      ),
    )
  })

  it('has room for the recent counts of any prompt up to the maximum half-life, and no further', () => {
    const largest = (halfLife: number) => 256 / (1 - 2 ** (-1 / halfLife))
    expect(largest(MAX_HALF_LIFE)).toBeLessThan(65535)
    expect(largest(MAX_HALF_LIFE + 1)).toBeGreaterThan(65535)
  })

  it('returns counts that are aligned and own their memory, so that the text can be freed', () => {
    const counts = decodeCounts(Buffer.from(new Uint16Array([1, 2, 3]).buffer).toString('base64'), 3)!
    expect([...counts]).toEqual([1, 2, 3])
    expect(counts.byteOffset).toBe(0)
    expect(counts.buffer.byteLength).toBe(6)
  })
})
