import { readFileSync } from 'node:fs'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodeDecodeExperts, readDecodeExperts } from './decode-experts.ts'

interface Case {
  name: string
  layers: number
  experts: number
  top_k: number
  payload: unknown
}
interface Recorded extends Case {
  steps: number
  ids: number[]
}
const { records } = JSON.parse(
  readFileSync(new URL('../../test/golden/wire/vectors.json', import.meta.url), 'utf8'),
) as { records: (Case | Recorded)[] }
const isSound = (record: Case | Recorded): record is Recorded => 'ids' in record
const SHAPE = { layers: 3, experts: 300, topK: 2 }

describe('experts of generated tokens, as Python writes and reads them', () => {
  it.each(records.filter(isSound))(
    'are written and read: $name',
    ({ layers, experts, top_k: topK, steps, ids, payload }) => {
      const shape = { layers, experts, topK }
      expect(encodeDecodeExperts({ ...shape, steps, ids: Uint16Array.from(ids) })).toEqual(payload)
      expect(readDecodeExperts(payload, shape)).toEqual({ ...shape, steps, ids: Uint16Array.from(ids) })
    },
  )

  it.each(records.filter(record => !isSound(record)))(
    'are rejected: $name',
    ({ layers, experts, top_k: topK, payload }) => {
      expect(readDecodeExperts(payload, { layers, experts, topK })).toBeUndefined()
    },
  )
})

describe('experts of generated tokens', () => {
  it('survive a round trip through JSON, for any number of experts', () => {
    const shape = fc.record({
      layers: fc.integer({ min: 1, max: 4 }),
      experts: fc.integer({ min: 2, max: 600 }),
      topK: fc.integer({ min: 1, max: 2 }),
    })
    fc.assert(
      fc.property(shape, fc.nat({ max: 9 }), fc.infiniteStream(fc.nat()), (shape, steps, numbers) => {
        const ids = Uint16Array.from(
          { length: steps * shape.layers * shape.topK },
          () => (numbers.next().value as number) % shape.experts,
        )
        const sent: unknown = JSON.parse(JSON.stringify(encodeDecodeExperts({ ...shape, steps, ids })))
        expect(readDecodeExperts(sent, shape)).toEqual({ ...shape, steps, ids })
      }),
    )
  })

  it('never make the reader throw', () => {
    const wild = fc.dictionary(
      fc.constantFrom('steps', 'dtype', 'ids'),
      fc.oneof(fc.jsonValue(), fc.nat(), fc.base64String()),
    )
    fc.assert(
      fc.property(wild, value => {
        const read = readDecodeExperts({ steps: 1, dtype: 'u16', ids: '', ...value }, SHAPE)
        expect(read === undefined || read.ids.length === read.steps * 6).toBe(true)
      }),
    )
  })

  it('are not written if their shape is wrong', () => {
    expect(() => encodeDecodeExperts({ ...SHAPE, steps: 2, ids: new Uint16Array(11) })).toThrow(
      '11 ids for 2 steps',
    )
  })
})
