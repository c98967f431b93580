import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { assignBySlots } from '../../test/oracles/hungarian.ts'
import { centroidsOf } from './centroids.ts'
import { scoresByCentroids, scoresByProducts } from './cluster-scores.ts'
import { kMeans } from './k-means.ts'
import { type PackedRows, packedRows, packUnit } from './packed-rows.ts'
import { createRandom } from './random.ts'

const WIDTH = 6

/** Unit rows around a few directions; some are copies of one another. */
function rows(points: number, seed: number, directions = 4, noise = 0.5): PackedRows {
  const random = createRandom(seed)
  const centres = Array.from({ length: directions }, () =>
    Array.from({ length: WIDTH }, () => random.uniform()),
  )
  const values = new Float32Array(points * WIDTH)
  for (let p = 0; p < points; p++) {
    const centre = centres[random.below(directions)]!
    const row = values.subarray(p * WIDTH, (p + 1) * WIDTH)
    if (p > 0 && random.uniform() < 0.2) row.set(values.subarray(0, WIDTH))
    else row.set(centre.map(x => x + noise * random.uniform()))
    const length = Math.hypot(...row)
    row.forEach((x, d) => (row[d] = x / length))
  }
  return packedRows(packUnit(values), WIDTH)
}
/** Sum of the cosines to the centroids, from vectors. */
function objectiveOf(data: PackedRows, clusterOf: Int32Array, clusters: number): number {
  const centroids = centroidsOf(data, clusterOf, clusters)
  const row = new Float32Array(WIDTH)
  return clusterOf.reduce((sum, cluster, point) => {
    data.copyRow(point, row)
    return row.reduce((dot, x, d) => dot + x * centroids[cluster * WIDTH + d]!, sum)
  }, 0)
}
const sizes = (clusterOf: Int32Array, clusters: number) =>
  Array.from({ length: clusters }, (_, k) => clusterOf.filter(c => c === k).length)
const cases = fc
  .record({
    points: fc.integer({ min: 1, max: 60 }),
    k: fc.integer({ min: 1, max: 12 }),
    seed: fc.nat(),
    balanced: fc.boolean(),
  })
  .filter(({ points, k }) => k <= points)

describe('k-means', () => {
  it('never gets worse between iterations, leaves no cluster empty and, if balanced, none too large', () => {
    fc.assert(
      fc.property(cases, ({ points, k, seed, balanced }) => {
        const data = rows(points, seed)
        const { clusterOf, history } = kMeans(data, {
          clusters: k,
          balanced,
          random: createRandom(seed),
          restarts: 2,
        })
        for (let step = 1; step < history.length; step++)
          expect(history[step]).toBeGreaterThanOrEqual(history[step - 1]! - 1e-9)
        const size = sizes(clusterOf, k)
        expect(Math.min(...size)).toBeGreaterThan(0)
        expect(Math.max(...size)).toBeLessThanOrEqual(balanced ? Math.ceil(points / k) : points)
        expect(objectiveOf(data, clusterOf, k)).toBeGreaterThanOrEqual(history.at(-1)! - 1e-6)
      }),
      { numRuns: 200 },
    )
  })

  it('ends with the best balanced assignment to its centroids', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 6, max: 40 }),
        fc.integer({ min: 1, max: 6 }),
        fc.nat(),
        (points, k, seed) => {
          const data = rows(points, seed)
          const { clusterOf } = kMeans(data, { clusters: k, balanced: true, random: createRandom(seed) })
          const costs = scoresByCentroids(data, k).ofClusters(clusterOf)
          const cost = (of: ArrayLike<number>) =>
            Array.from(of).reduce((sum, c, p) => sum + costs[p * k + c]!, 0)
          expect(cost(clusterOf)).toBeCloseTo(cost(assignBySlots(costs, points, k, Math.ceil(points / k))), 5)
        },
      ),
      { numRuns: 100 },
    )
  })

  it('finds clearly separated clusters', () => {
    const values = Float32Array.from([1, 0, 0, 0.8, 0.6, 0, 0, 0, 1, 0, 0.6, 0.8].flatMap(x => x))
    const { clusterOf } = kMeans(packedRows(packUnit(values), 3), {
      clusters: 2,
      balanced: true,
      random: createRandom(1),
    })
    expect(clusterOf[0]).toBe(clusterOf[1])
    expect(clusterOf[2]).toBe(clusterOf[3])
    expect(clusterOf[0]).not.toBe(clusterOf[2])
  })

  it('handles K = 1, K = N and identical points', () => {
    const same = packedRows(
      packUnit(Float32Array.from({ length: 5 * 2 }, (_, d) => (d % 2 === 0 ? 0.6 : 0.8))),
      2,
    )
    for (const balanced of [true, false]) {
      expect(sizes(kMeans(same, { clusters: 1, balanced, random: createRandom(1) }).clusterOf, 1)).toEqual([
        5,
      ])
      expect(sizes(kMeans(same, { clusters: 5, balanced, random: createRandom(1) }).clusterOf, 5)).toEqual([
        1, 1, 1, 1, 1,
      ])
      expect(
        sizes(kMeans(same, { clusters: 3, balanced, random: createRandom(1) }).clusterOf, 3),
      ).not.toContain(0)
    }
    expect(() => kMeans(same, { clusters: 6, balanced: true, random: createRandom(1) })).toThrow(
      'cannot split 5 points into 6 clusters',
    )
  })

  it('gives the same costs from products of points and from centroids', () => {
    fc.assert(
      fc.property(fc.integer({ min: 3, max: 50 }), fc.nat(), (points, seed) => {
        const data = rows(points, seed)
        const random = createRandom(seed)
        const [products, centroids] = [scoresByProducts(data, 3), scoresByCentroids(data, 3)]
        const compare = (a: Float64Array, b: Float64Array) =>
          a.forEach((cost, at) => expect(cost).toBeCloseTo(b[at]!, 6))
        compare(products.ofSeeds([0, 1, 2]), centroids.ofSeeds([0, 1, 2]))
        for (let round = 0; round < 3; round++) {
          const clusterOf = Int32Array.from({ length: points }, (_, p) => (p < 3 ? p : random.below(3)))
          compare(products.ofClusters(clusterOf), centroids.ofClusters(clusterOf))
        }
      }),
      { numRuns: 60 },
    )
  })

  it('gives the same clusters for the same seed', () => {
    const run = (seed: number) =>
      Array.from(kMeans(rows(50, 3), { clusters: 7, balanced: true, random: createRandom(seed) }).clusterOf)
    expect(run(4)).toEqual(run(4))
  })

  it('starts from given centroids: those of a solution do not change, and it is never worse than they are', () => {
    const data = rows(60, 3)
    const options = { clusters: 4, balanced: true, random: createRandom(1), restarts: 1 }
    const solved = kMeans(data, options)
    const start = scoresByCentroids(data, 4).ofClusters(solved.clusterOf).slice()
    const again = kMeans(data, { ...options, random: createRandom(99), start })
    expect(again.clusterOf).toEqual(solved.clusterOf)
    expect(again.history[0]).toBeGreaterThanOrEqual(solved.history.at(-1)!)
  })
})
