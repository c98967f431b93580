import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { jsq } from './jsq.ts'
import { random } from './random-pick.ts'
import { cellsOfAlike, inCells } from './cells.ts'
import type { DecodePolicy } from './decode-policy.ts'
import { band } from './band.ts'

const ctx = (seed = 1) => ({ random: createRandom(seed).uniform })
const cluster = (...inflight: number[]) => inflight.map((n, worker) => ({ worker, inflight: n }))
const towards = (degrees: number) =>
  new Float32Array([Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)])
const rows = (...vectors: Float32Array[]) => Float32Array.from(vectors.flatMap(vector => [...vector]))

describe('workers in cells', () => {
  const cellOf = [0, 0, 1, 1]

  it('are picked in the chosen cell, whose load is the mean of its workers', () => {
    const policy = inCells({ cellOf, outer: jsq(), inner: jsq() })
    // The least loaded worker overall is in the fuller cell.
    expect(policy.pick({ id: 'a' }, cluster(0, 9, 4, 3), ctx())).toEqual({
      worker: 3,
      reason: 'least_loaded',
    })
    // With one worker away it is the mean of the others, not their sum.
    expect(policy.pick({ id: 'a' }, cluster(4, 9, 3, 2).toSpliced(1, 1), ctx())).toMatchObject({ worker: 3 })
  })

  it('are found by signature, cell first: the nearest worker of the nearest cell', () => {
    const centroids = rows(towards(0), towards(20), towards(70), towards(90))
    const outer = band({ centroids: rows(towards(10), towards(80)), dimensions: 2, tau: 0 })
    const policy = inCells({ cellOf, outer, inner: band({ centroids, dimensions: 2, tau: 0 }) })
    for (const [degrees, worker] of [
      [2, 0],
      [25, 1],
      [60, 2],
      [88, 3],
    ] as const)
      expect(
        policy.pick({ id: 'a', signature: towards(degrees) }, cluster(9, 9, 9, 9), ctx()),
        `${degrees}°`,
      ).toEqual({ worker, reason: 'band_hit' })
  })

  it('report every dispatch and release to both policies: the cell to one, the worker to the other', () => {
    const told: string[] = []
    const spy = (name: string): DecodePolicy => ({
      ...jsq(),
      dispatched: (_, w) => void told.push(`${name}+${w}`),
      released: (_, w) => void told.push(`${name}-${w}`),
    })
    const policy = inCells({ cellOf, outer: spy('cell'), inner: spy('worker') })
    policy.dispatched!({ id: 'a' }, 3)
    policy.released!({ id: 'a' }, 3)
    expect(told).toEqual(['cell+1', 'worker+3', 'cell-1', 'worker-3'])
  })

  it('are all used if cells are chosen at random, including a new worker beyond the plan', () => {
    const policy = inCells({ cellOf, outer: random(), inner: random() })
    const context = ctx()
    const picked = new Set(
      Array.from({ length: 200 }, () => policy.pick({ id: 'a' }, cluster(0, 0, 0, 0, 0), context).worker),
    )
    expect(picked.size).toBe(5)
  })
})

describe('a plan of cells', () => {
  it('groups workers with similar centroids in cells of equal size, each with the centroid of its workers', () => {
    const centroids = rows(towards(1), towards(88), towards(3), towards(45), towards(86), towards(47))
    const { cellOf, centroids: ofCells } = cellsOfAlike(centroids, 2, 3, 1)
    expect(cellOf[0]).toBe(cellOf[2])
    expect(cellOf[1]).toBe(cellOf[4])
    expect(cellOf[3]).toBe(cellOf[5])
    expect(new Set(cellOf).size).toBe(3)
    for (const [worker, degrees] of [
      [0, 2],
      [1, 87],
      [3, 46],
    ] as const) {
      const cell = cellOf[worker]!
      const [x, y] = towards(degrees)
      expect(ofCells[2 * cell]! * x! + ofCells[2 * cell + 1]! * y!).toBeGreaterThan(0.9999)
    }
  })
})
