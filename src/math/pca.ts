import { createRandom } from './random.ts'
import { gramOf, type PackedRows, UNIT } from './packed-rows.ts'

/**
 * The first two principal components of rows: coordinates of each row, shares of the variance, and a
 * projection for other vectors.
 */
export interface PrincipalPlane {
  /** [rows × 2] */
  readonly coordinates: Float64Array
  readonly explained: readonly [number, number]
  /** Unit directions [2 × width], and the coordinate of the rows' mean along each. */
  readonly axes: Float64Array
  readonly offsets: readonly [number, number]
  project(x: Float32Array): [number, number]
}

const MAX_ITERATIONS = 300

/**
 * Power iteration on the centred products of rows, N × N, which is small compared with the width. Signs are
 * fixed (the coordinate furthest from 0 is positive), so the same rows give the same picture.
 */
export function principalPlane(points: PackedRows): PrincipalPlane {
  const { rows: n, width } = points
  const centred = centredGram(points)
  let total = 0
  for (let r = 0; r < n; r++) total += centred[r * n + r]!
  const first = leadingVector(centred, n)
  for (let r = 0; r < n; r++)
    for (let c = 0; c < n; c++) centred[r * n + c]! -= first.value * first.vector[r]! * first.vector[c]!
  const second = leadingVector(centred, n)
  const axes = [first, second]

  const mean = new Float64Array(width)
  const row = new Float32Array(width)
  const eachRow = (use: (r: number) => void) => {
    for (let r = 0; r < n; r++) {
      points.copyRow(r, row)
      use(r)
    }
  }
  eachRow(() => row.forEach((value, d) => (mean[d]! += value / n)))
  const directions = axes.map(({ value, vector }) => {
    const direction = new Float64Array(width)
    if (value > 0)
      eachRow(r => row.forEach((x, d) => (direction[d]! += ((x - mean[d]!) * vector[r]!) / Math.sqrt(value))))
    return direction
  })
  const coordinates = new Float64Array(2 * n)
  for (let r = 0; r < n; r++)
    axes.forEach(
      ({ value, vector }, axis) => (coordinates[2 * r + axis] = Math.sqrt(Math.max(0, value)) * vector[r]!),
    )
  const offset = (direction: Float64Array) => mean.reduce((sum, value, d) => sum + value * direction[d]!, 0)
  const along = (x: Float32Array, direction: Float64Array) =>
    x.reduce((sum, value, d) => sum + (value - mean[d]!) * direction[d]!, 0)
  const share = (value: number) => (total > 0 ? Math.max(0, value) / total : 0)
  return {
    coordinates,
    explained: [share(first.value), share(second.value)],
    axes: Float64Array.from([...directions[0]!, ...directions[1]!]),
    offsets: [offset(directions[0]!), offset(directions[1]!)],
    project: x => [along(x, directions[0]!), along(x, directions[1]!)],
  }
}

/** Products of rows minus their mean: G − row means − column means + mean. */
function centredGram(points: PackedRows): Float64Array {
  const n = points.rows
  const gram = Float64Array.from(gramOf(points), product => product / UNIT ** 2)
  const means = new Float64Array(n)
  for (let r = 0; r < n; r++) for (let c = 0; c < n; c++) means[r]! += gram[r * n + c]! / n
  const mean = means.reduce((a, b) => a + b, 0) / n
  for (let r = 0; r < n; r++) for (let c = 0; c < n; c++) gram[r * n + c]! += mean - means[r]! - means[c]!
  return gram
}

function leadingVector(matrix: Float64Array, n: number): { value: number; vector: Float64Array } {
  const random = createRandom(n)
  const vector = Float64Array.from({ length: n }, () => random.uniform() - 0.5)
  let value = 0
  for (let iteration = 0; iteration < MAX_ITERATIONS; iteration++) {
    const next = new Float64Array(n)
    for (let r = 0; r < n; r++) {
      let sum = 0
      for (let c = 0, at = r * n; c < n; c++, at++) sum += matrix[at]! * vector[c]!
      next[r] = sum
    }
    const length = Math.sqrt(next.reduce((squares, x) => squares + x * x, 0))
    if (!(length > 1e-12)) return { value: 0, vector: new Float64Array(n) }
    value = length
    let change = 0
    for (let r = 0; r < n; r++) {
      change = Math.max(change, Math.abs(next[r]! / length - vector[r]!))
      vector[r] = next[r]! / length
    }
    if (change < 1e-8) break
  }
  const furthest = vector.reduce((best, x) => (Math.abs(x) > Math.abs(best) ? x : best), 0)
  return { value, vector: furthest < 0 ? vector.map(x => -x) : vector }
}
