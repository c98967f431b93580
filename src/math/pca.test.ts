import { describe, expect, it } from 'vitest'
import { golden } from '../../test/golden.ts'
import { principalPlane } from './pca.ts'
import { type PackedRows, packedRows, packUnit } from './packed-rows.ts'

/**
 * Rows scaled into the unit ball, which fixed point can represent: shares of variance do not depend on the
 * scale.
 */
function scaled(values: readonly number[], width: number): PackedRows {
  const lengths = Array.from({ length: values.length / width }, (_, r) =>
    Math.hypot(...values.slice(r * width, (r + 1) * width)),
  )
  const longest = Math.max(...lengths)
  return packedRows(packUnit(Float32Array.from(values, x => x / longest)), width)
}

describe('the principal plane', () => {
  it.each(golden.pca)('explains the same variance as NumPy: $name', ({ width, values, explained }) => {
    const plane = principalPlane(scaled(values, width))
    expect(plane.explained[0]).toBeCloseTo(explained[0], 3)
    expect(plane.explained[1]).toBeCloseTo(explained[1], 3)
  })

  it('projects a row to its own coordinates', () => {
    const { width, values } = golden.pca[0]!
    const points = scaled(values, width)
    const plane = principalPlane(points)
    const row = new Float32Array(width)
    points.copyRow(3, row)
    const [x, y] = plane.project(row)
    expect(x).toBeCloseTo(plane.coordinates[6]!, 5)
    expect(y).toBeCloseTo(plane.coordinates[7]!, 5)
  })

  it('is a point if all rows are equal', () => {
    const plane = principalPlane(scaled([1, 2, 1, 2, 1, 2], 2))
    expect(plane.explained).toEqual([0, 0])
    expect(Array.from(plane.coordinates)).toEqual([0, 0, 0, 0, 0, 0])
  })
})
