import type { PackedRows } from './packed-rows.ts'

/** Unit vectors in the directions of sums [count × width]; a zero sum stays zero. */
export function unitVectors(sums: Float64Array, width: number): Float64Array {
  const units = new Float64Array(sums.length)
  for (let from = 0; from < sums.length; from += width) {
    let squares = 0
    for (let at = from; at < from + width; at++) squares += sums[at]! * sums[at]!
    const scale = squares > 0 ? 1 / Math.sqrt(squares) : 0
    for (let at = from; at < from + width; at++) units[at] = sums[at]! * scale
  }
  return units
}

/** The unit centroid of each cluster's rows: [clusters × width]. */
export function centroidsOf(points: PackedRows, clusterOf: Int32Array, clusters: number): Float32Array {
  const sums = new Float64Array(clusters * points.width)
  for (let point = 0; point < points.rows; point++)
    points.addRow(point, 1, sums, clusterOf[point]! * points.width)
  return Float32Array.from(unitVectors(sums, points.width))
}
