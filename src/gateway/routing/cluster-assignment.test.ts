import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type AssignableWorker,
  assignClusters,
  centroidsByWorker,
  type ClusterAssignment,
  identityAssignment,
  misfit,
  targetCentroids,
} from './cluster-assignment.ts'

const worker = (index: number, fixed = false): AssignableWorker => ({ id: `w${index}`, index, fixed })
function assignmentOf(workers: readonly AssignableWorker[], clusters: number): ClusterAssignment {
  const result = assignClusters(workers, clusters)
  if (result.kind === 'impossible') throw new Error(result.why)
  return result.assignment
}

describe('clusters', () => {
  it('of a file are assigned in order', () => {
    expect([...identityAssignment(3)]).toEqual([
      [0, 0],
      [1, 1],
      [2, 2],
    ])
  })

  it('do not match if there are more or fewer workers, or a worker has none', () => {
    const [two, three] = [
      [worker(0), worker(1)],
      [worker(0), worker(1), worker(2)],
    ]
    expect(misfit(two, 2, identityAssignment(2))).toBeUndefined()
    expect(misfit(three, 2, identityAssignment(2))).toBe('2 clusters for 3 decode workers')
    expect(misfit([worker(0)], 2, identityAssignment(2))).toBe('2 clusters for 1 decode worker')
    expect(misfit([worker(0), worker(7)], 2, identityAssignment(2))).toBe('no cluster for w7')
    expect(misfit([], 2, identityAssignment(2))).toBeUndefined()
  })

  it('stay with their workers when a worker joins, and close the gap when one leaves', () => {
    expect([...assignmentOf([worker(0), worker(1), worker(2)], 3)]).toEqual([
      [0, 0],
      [1, 1],
      [2, 2],
    ])
    expect([...assignmentOf([worker(0), worker(2), worker(3)], 3)]).toEqual([
      [0, 0],
      [2, 2],
      [3, 1],
    ])
  })

  it('that are fixed stay with their worker, or the assignment is impossible', () => {
    expect(assignClusters([worker(0), worker(4, true)], 3)).toEqual({
      kind: 'impossible',
      why: 'w4 has the fixed cluster 4, but the fit has 3 clusters',
    })
    expect(assignmentOf([worker(5), worker(2, true), worker(0)], 3).get(2)).toBe(2)
  })

  it('are all assigned, one to each worker while there are enough, whichever workers join and leave', () => {
    const workers = fc.uniqueArray(fc.nat(20), { maxLength: 12 })
    fc.assert(
      fc.property(workers, fc.integer({ min: 1, max: 16 }), (indexes, clusters) => {
        const assignment = assignmentOf(
          indexes.map(index => worker(index)),
          clusters,
        )
        expect(new Set(assignment.values())).toEqual(new Set(Array.from({ length: clusters }, (_, k) => k)))
        expect(assignment.size).toBe(clusters)
        expect(indexes.filter(index => assignment.has(index))).toHaveLength(
          Math.min(indexes.length, clusters),
        )
        expect(indexes.filter(index => index < clusters && assignment.get(index) !== index)).toEqual([])
      }),
    )
  })
})

describe('centroids', () => {
  const centroids = Float32Array.from([1, 0, 0, 1, 0.5, 0.5])

  it('are targets for the cluster of their worker: zero for new workers, weighted for fixed ones', () => {
    const now = { centroids, assignment: identityAssignment(3) }
    const workers = [worker(0), worker(2, true), worker(3)]
    expect([...targetCentroids(workers, now, assignmentOf(workers, 3), 3, 2)]).toEqual([1, 0, 0, 0, 500, 500])
  })

  it('are ordered by worker index, and a row without a worker is NaN', () => {
    expect(centroidsByWorker(centroids, 2, identityAssignment(3))).toBe(centroids)
    expect([
      ...centroidsByWorker(
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
