import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createKernel } from './kernel.ts'
import { gramOf, packedRows, packUnit, UNIT } from './packed-rows.ts'

const unit = (values: readonly number[]) => {
  const length = Math.hypot(...values)
  return length > 0 ? values.map(x => x / length) : values.map(() => 0)
}
const dot = (a: readonly number[], b: readonly number[]) => a.reduce((sum, x, d) => sum + x * b[d]!, 0)
const vectors = fc.array(fc.array(fc.integer({ min: -20, max: 20 }), { minLength: 5, maxLength: 5 }), {
  minLength: 1,
  maxLength: 9,
})

describe('packed rows', () => {
  it('round to the nearest step, both ends and signs included', () => {
    expect(Array.from(packUnit(Float32Array.from([1, -1, 0, 0.6 / UNIT, 1.4 / UNIT, -1.6 / UNIT])))).toEqual([
      UNIT,
      -UNIT,
      0,
      1,
      1,
      -2,
    ])
  })

  it('compute exact products and sums of their integers, the same with and without SIMD', () => {
    fc.assert(
      fc.property(vectors, list => {
        const packed = packUnit(Float32Array.from(list.flatMap(unit)))
        const integers = list.map((_, r) => Array.from(packed.subarray(5 * r, 5 * r + 5)))
        for (const kind of ['simd', 'plain'] as const) {
          const rows = packedRows(packed, 5, bytes => createKernel(bytes, kind))
          expect(Array.from(gramOf(rows))).toEqual(integers.flatMap(a => integers.map(b => dot(a, b))))
          const sums = new Float64Array(6)
          integers.forEach((_, r) => rows.addRow(r, 1, sums, 1))
          rows.addRow(0, -1, sums, 1)
          expect(Array.from(sums.subarray(1))).toEqual(
            [0, 1, 2, 3, 4].map(d => integers.slice(1).reduce((sum, x) => sum + x[d]!, 0)),
          )
        }
      }),
    )
  })

  it('compute cosines to other vectors to seven digits, in the requested columns', () => {
    fc.assert(
      fc.property(vectors, vectors, (list, others) => {
        const rows = packedRows(packUnit(Float32Array.from(list.flatMap(unit))), 5)
        const directions = others.map(unit)
        const columns = directions.map((_, v) => 2 * v + 1)
        const stride = 2 * directions.length + 1
        const out = new Float64Array(rows.rows * stride).fill(9)
        rows.negatedProducts(Float64Array.from(directions.flat()), columns, out, stride)
        const row = new Float32Array(5)
        for (let r = 0; r < rows.rows; r++) {
          rows.copyRow(r, row)
          columns.forEach((column, v) =>
            expect(out[r * stride + column]).toBeCloseTo(-dot(Array.from(row), directions[v]!), 6),
          )
          expect(out[r * stride]).toBe(9)
        }
      }),
    )
  })
})
