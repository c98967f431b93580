import { describe, expect, it } from 'vitest'
import { golden } from '../../test/golden.ts'
import { principalPlane } from './pca.ts'
import { rowMatrixOf } from './row-matrix.ts'

describe('the principal plane', () => {
  it.each(golden.pca)('explains the variance that NumPy says: $name', ({ width, values, explained }) => {
    const plane = principalPlane(rowMatrixOf(Float32Array.from(values), width))
    expect(plane.explained[0]).toBeCloseTo(explained[0], 4)
    expect(plane.explained[1]).toBeCloseTo(explained[1], 4)
  })

  it('places a row where the plane has it', () => {
    const { width, values } = golden.pca[0]!
    const matrix = rowMatrixOf(Float32Array.from(values), width)
    const plane = principalPlane(matrix)
    const [x, y] = plane.project(matrix.row(3))
    expect(x).toBeCloseTo(plane.coordinates[6]!, 4)
    expect(y).toBeCloseTo(plane.coordinates[7]!, 4)
  })

  it('is a point when all rows are one', () => {
    const plane = principalPlane(rowMatrixOf(Float32Array.from([1, 2, 1, 2, 1, 2]), 2))
    expect(plane.explained).toEqual([0, 0])
    expect(Array.from(plane.coordinates)).toEqual([0, 0, 0, 0, 0, 0])
  })
})
