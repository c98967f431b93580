import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  arrangeSeats,
  inSeats,
  misfit,
  type SeatedWorker,
  type Seats,
  seatsInOrder,
  wantedCentroids,
} from './cluster-assignment.ts'

const worker = (index: number, fixed = false): SeatedWorker => ({ id: `w${index}`, index, fixed })
const seatsOf = (workers: readonly SeatedWorker[], clusters: number) =>
  arrangeSeats(workers, clusters) as Seats

describe('seats', () => {
  it('of a file are in order', () => {
    expect([...seatsInOrder(3)]).toEqual([
      [0, 0],
      [1, 1],
      [2, 2],
    ])
  })

  it('do not fit when there are more workers than clusters, fewer, or one has none', () => {
    const [two, three] = [
      [worker(0), worker(1)],
      [worker(0), worker(1), worker(2)],
    ]
    expect(misfit(two, 2, seatsInOrder(2))).toBeUndefined()
    expect(misfit(three, 2, seatsInOrder(2))).toBe('3 decode workers and 2 clusters in the artifact')
    expect(misfit([worker(0)], 2, seatsInOrder(2))).toBe('1 decode worker and 2 clusters in the artifact')
    expect(misfit([worker(0), worker(7)], 2, seatsInOrder(2))).toBe('no cluster for w7')
    expect(misfit([], 2, seatsInOrder(2))).toBeUndefined()
  })

  it('stay where they are when a worker comes, and close up when one goes', () => {
    expect([...seatsOf([worker(0), worker(1), worker(2)], 3)]).toEqual([
      [0, 0],
      [1, 1],
      [2, 2],
    ])
    expect([...seatsOf([worker(0), worker(2), worker(3)], 3)]).toEqual([
      [0, 0],
      [2, 2],
      [3, 1],
    ])
  })

  it('of fixed workers are theirs, or there is no re-fit', () => {
    expect(arrangeSeats([worker(0), worker(4, true)], 3)).toBe(
      'w4 keeps its cluster 4, which a fit of 3 clusters does not have',
    )
    expect(seatsOf([worker(5), worker(2, true), worker(0)], 3).get(2)).toBe(2)
  })

  it('are one for each worker as far as clusters go, and every cluster has one, whoever comes and goes', () => {
    const workers = fc.uniqueArray(fc.nat(20), { maxLength: 12 })
    fc.assert(
      fc.property(workers, fc.integer({ min: 1, max: 16 }), (indexes, clusters) => {
        const seats = seatsOf(
          indexes.map(index => worker(index)),
          clusters,
        )
        expect(new Set(seats.values())).toEqual(new Set(Array.from({ length: clusters }, (_, k) => k)))
        expect(seats.size).toBe(clusters)
        expect(indexes.filter(index => seats.has(index))).toHaveLength(Math.min(indexes.length, clusters))
        expect(indexes.filter(index => index < clusters && seats.get(index) !== index)).toEqual([])
      }),
    )
  })
})

describe('centroids', () => {
  const centroids = Float32Array.from([1, 0, 0, 1, 0.5, 0.5])

  it('are wanted where their worker will be, zeros for newcomers, and weigh more for fixed workers', () => {
    const now = { centroids, seats: seatsInOrder(3) }
    const workers = [worker(0), worker(2, true), worker(3)]
    expect([...wantedCentroids(workers, now, seatsOf(workers, 3), 3, 2)]).toEqual([1, 0, 0, 0, 500, 500])
  })

  it('lie by index of their worker, and a row without one is like nothing', () => {
    expect(inSeats(centroids, 2, seatsInOrder(3))).toBe(centroids)
    expect([
      ...inSeats(
        centroids,
        2,
        new Map([
          [0, 1],
          [3, 0],
        ]),
      ),
    ]).toEqual([0, 1, NaN, NaN, NaN, NaN, 1, 0])
  })
})
