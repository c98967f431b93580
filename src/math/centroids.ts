import type { UnitRows } from './row-matrix.ts'

/** Unit sums of each cluster's rows, and Σ |sum|, which is the sum of the cosines to them. */
export function centroidsOf(points: UnitRows, clusterOf: Int32Array, clusters: number): { centroids: Float32Array; objective: number } {
  const { width } = points
  const sums = new Float64Array(clusters * width)
  for (let point = 0; point < points.rows; point++) points.addRow(point, sums, clusterOf[point]! * width)
  const centroids = new Float32Array(clusters * width)
  let objective = 0
  for (let k = 0, from = 0; k < clusters; k++, from += width) {
    let squares = 0
    for (let at = from; at < from + width; at++) squares += sums[at]! ** 2
    objective += Math.sqrt(squares)
    const scale = squares > 0 ? 1 / Math.sqrt(squares) : 0
    for (let at = from; at < from + width; at++) centroids[at] = sums[at]! * scale
  }
  return { centroids, objective }
}
