import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createKernel } from './kernel.ts'
import { packedRows, packUnit, UNIT } from './packed-rows.ts'
import { gramOf } from './row-matrix.ts'

const unit = (values: readonly number[]) => {
  const length = Math.hypot(...values)
  return length > 0 ? values.map(x => x / length) : values.map(() => 0)
}
const vectors = fc.array(fc.array(fc.integer({ min: -20, max: 20 }), { minLength: 5, maxLength: 5 }), { minLength: 1, maxLength: 9 })

describe('packed rows', () => {
  it('round to the nearest step, both ends and signs included', () => {
    expect(Array.from(packUnit(Float32Array.from([1, -1, 0, 0.6 / UNIT, 1.4 / UNIT, -1.6 / UNIT])))).toEqual([UNIT, -UNIT, 0, 1, 1, -2])
  })

  it('give cosines close to those of the vectors, the same with and without SIMD', () => {
    fc.assert(
      fc.property(vectors, list => {
        const units = list.map(unit)
        const packed = packUnit(Float32Array.from(units.flat()))
        const rows = packedRows(packed, 5)
        const gram = gramOf(rows)
        units.forEach((a, r) =>
          units.forEach((b, c) => {
            expect(gram[r * units.length + c]).toBeCloseTo(
              a.reduce((sum, x, d) => sum + x * b[d]!, 0),
              3,
            )
          }),
        )
        expect(gram).toEqual(gramOf(packedRows(packed, 5, bytes => createKernel(bytes, 'plain'))))
        const row = new Float32Array(5)
        const sums = new Float64Array(6)
        units.forEach((x, r) => {
          rows.copyRow(r, row)
          rows.addRow(r, sums, 1)
          x.forEach((value, d) => expect(row[d]).toBeCloseTo(value, 3))
        })
        for (let d = 0; d < 5; d++)
          expect(sums[d + 1]).toBeCloseTo(
            units.reduce((sum, x) => sum + x[d]!, 0),
            2,
          )
      }),
    )
  })
})
