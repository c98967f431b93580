import { principalPlane } from '../math/pca.ts'
import { packedRows } from '../math/packed-rows.ts'
import type { Calibration } from './calibration.ts'
import type { Fitted } from './fit.ts'
import type { FitFigures } from './summary.ts'

/** Number of requests used for the plane; more would look the same and take N² time. */
const PLANE_ROWS = 2000

/** Data for the report beyond the summary: figures 9, 1 and 3 of the paper. */
export function figuresOf(
  { data, points, clusters, artifact }: Fitted,
  domains: readonly string[],
): FitFigures {
  const heat = data.decodeCounts && data.domain ? heatOf(data, domains) : undefined
  const activation = data.decodeCounts ? activationOf(data) : undefined
  const { domain, clusterOf } = artifact.calibration
  const { width } = points
  const { rows, picked } = planeRows(artifact.primary.signatures, points.rows, width, PLANE_ROWS)
  const plane = principalPlane(packedRows(picked, width))
  const centroids = clusters.sizes.map((_, k) =>
    plane.project(clusters.centroids.subarray(k * width, (k + 1) * width)),
  )
  return {
    pca: {
      points: rows.map((row, at) => ({
        x: plane.coordinates[2 * at]!,
        y: plane.coordinates[2 * at + 1]!,
        domain: domain?.[row] ?? -1,
        cluster: clusterOf[row]!,
      })),
      centroids: centroids.map(([x, y]) => ({ x, y })),
      explained: plane.explained,
    },
    heat,
    activation,
  }
}

/** A regular sample of at most `max` requests, and their signatures. */
export function planeRows(
  signatures: Int16Array,
  requests: number,
  width: number,
  max: number,
): { readonly rows: readonly number[]; readonly picked: Int16Array } {
  const step = Math.max(1, Math.ceil(requests / max))
  const rows = Array.from({ length: Math.ceil(requests / step) }, (_, at) => at * step)
  const picked = new Int16Array(rows.length * width)
  rows.forEach((row, at) => picked.set(signatures.subarray(row * width, (row + 1) * width), at * width))
  return { rows, picked }
}

/**
 * Share of the requests' decode steps in which each expert fires, per domain: [domains × layers × experts];
 * rows of domains without requests are zero.
 */
function activationByDomain(
  { decodeCounts, decodeSteps, domain, layers, experts, requests }: Calibration,
  domains: number,
): Float64Array {
  const cells = layers * experts
  const sums = new Float64Array(domains * cells)
  const steps = new Float64Array(domains)
  for (let r = 0; r < requests; r++) {
    const of = domain![r]!
    steps[of]! += decodeSteps![r]!
    for (let c = 0; c < cells; c++) sums[of * cells + c]! += decodeCounts![r * cells + c]!
  }
  return sums.map((sum, at) =>
    steps[Math.floor(at / cells)]! > 0 ? sum / steps[Math.floor(at / cells)]! : 0,
  )
}

/**
 * Decode activation of each domain relative to the mean over domains, at the layer where domains differ most
 * (Fig. 1).
 */
function heatOf(data: Calibration, domains: readonly string[]): FitFigures['heat'] {
  const { layers, experts } = data
  const cells = layers * experts
  const present = domains.map((_, of) => of).filter(of => data.domain!.includes(of))
  const activation = activationByDomain(data, domains.length)
  const at = (of: number, layer: number, e: number) => activation[of * cells + layer * experts + e]!
  const mean = (layer: number, e: number) =>
    present.reduce((sum, of) => sum + at(of, layer, e), 0) / present.length
  const range = Array.from({ length: experts }, (_, e) => e)
  const contrast = (layer: number) =>
    range.reduce(
      (sum, e) => sum + present.reduce((d, of) => d + Math.abs(at(of, layer, e) - mean(layer, e)), 0),
      0,
    )
  const contrasts = Array.from({ length: layers }, (_, layer) => contrast(layer))
  const layer = contrasts.indexOf(Math.max(...contrasts))
  const relative = (of: number, e: number) => (mean(layer, e) > 0 ? at(of, layer, e) / mean(layer, e) : 1)
  const leader = (e: number) =>
    present.reduce((best, of) => (relative(of, e) > relative(best, e) ? of : best))
  const order = range
    .map(e => ({ e, leader: leader(e) }))
    .sort((a, b) => a.leader - b.leader || relative(b.leader, b.e) - relative(a.leader, a.e) || a.e - b.e)
  return {
    layer,
    experts: order.map(({ e }) => e),
    rows: present.map(of => ({ domain: domains[of]!, values: order.map(({ e }) => relative(of, e)) })),
  }
}

/** Each expert's share of its layer's choices, at prefill and at decode, × experts: 1 is average (Fig. 3). */
function activationOf({
  counts,
  decodeCounts,
  layers,
  experts,
  requests,
}: Calibration): FitFigures['activation'] {
  const cells = layers * experts
  const shares = (values: Uint16Array) => {
    const sums = new Float64Array(cells)
    for (let r = 0; r < requests; r++) for (let c = 0; c < cells; c++) sums[c]! += values[r * cells + c]!
    const totals = Array.from({ length: layers }, (_, layer) =>
      sums.subarray(layer * experts, (layer + 1) * experts).reduce((a, b) => a + b, 0),
    )
    return sums.map((sum, c) =>
      totals[Math.floor(c / experts)]! > 0 ? (sum * experts) / totals[Math.floor(c / experts)]! : 0,
    )
  }
  const [prefill, decode] = [shares(counts), shares(decodeCounts!)]
  return {
    correlation: pearson(prefill, decode),
    points: Array.from(prefill, (x, c) => ({ x, y: decode[c]! })),
  }
}

function pearson(x: Float64Array, y: Float64Array): number {
  const mean = (values: Float64Array) => values.reduce((a, b) => a + b, 0) / values.length
  const [mx, my] = [mean(x), mean(y)]
  let [xy, xx, yy] = [0, 0, 0]
  x.forEach((value, i) => {
    xy += (value - mx) * (y[i]! - my)
    xx += (value - mx) ** 2
    yy += (y[i]! - my) ** 2
  })
  return xx * yy > 0 ? xy / Math.sqrt(xx * yy) : 0
}
