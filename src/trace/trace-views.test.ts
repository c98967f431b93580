import { describe, expect, it } from 'vitest'
import { shipped } from '../../test/data.ts'
import { openTrace } from './trace.ts'
import { shuffledExperts, unrelatedRequests, withoutDomain } from './trace-views.ts'

const calibration = await openTrace(shipped('lab16-task.calibration'))
const evaluation = await openTrace(shipped('lab16-task.evaluation'))
const { layers, experts, topK } = calibration
const width = layers * experts
const sorted = (values: ArrayLike<number>) => Array.from(values).sort((a, b) => a - b)
/** Counts of one layer of one request. */
const cellsOf = (counts: ArrayLike<number>, request: number, layer: number) =>
  Array.prototype.slice.call(
    counts,
    request * width + layer * experts,
    request * width + (layer + 1) * experts,
  )

describe('a trace without a domain', () => {
  it('has the other requests with all their values, in order, and does not know the name', async () => {
    const view = await withoutDomain(calibration, 'legal')
    const all = (await calibration.domain())!
    const kept = [...all.keys()].filter(request => calibration.domains[all[request]!] !== 'legal')
    expect(view.requests).toBe(kept.length)
    expect(view.requests).toBeLessThan(calibration.requests)
    expect(view.domains).toEqual(['code', 'math', 'medical'])
    expect(Array.from((await view.domain())!, d => view.domains[d])).toEqual(
      kept.map(request => calibration.domains[all[request]!]),
    )
    const [counts, decoded] = [await view.prefillCounts(), await view.decodeCounts()]
    const [allCounts, allDecoded] = [await calibration.prefillCounts(), await calibration.decodeCounts()]
    for (const at of [0, 7, kept.length - 1]) {
      expect(cellsOf(counts, at, 3)).toEqual(cellsOf(allCounts, kept[at]!, 3))
      expect(cellsOf(decoded, at, 9)).toEqual(cellsOf(allDecoded, kept[at]!, 9))
    }
    expect((await view.decodeSteps()).length).toBe(kept.length)
    expect((await view.promptTokens())!.length).toBe(kept.length)
    expect((await view.gateProb()).length).toBe(view.gateRows * width)
    expect(view.gateRows).toBe(kept.filter(request => request < calibration.gateRows).length)
    expect(await view.prefillCounts(5, 7)).toEqual(counts.subarray(5 * width, 7 * width))
  })

  it('of another name is refused', async () => {
    await expect(withoutDomain(calibration, 'poetry')).rejects.toThrow(/no domain poetry/)
  })
})

describe('a trace with shuffled experts', () => {
  it('moves each expert to one new number per layer, the same in all requests and for decode', async () => {
    const view = shuffledExperts(evaluation, 1)
    const [before, after] = [await evaluation.prefillCounts(), await view.prefillCounts()]
    const [ids, newIds] = [await evaluation.decodeExpertIds(0, 3), await view.decodeExpertIds(0, 3)]
    const numberOf = Array.from({ length: layers }, () => new Map<number, number>())
    ids.forEach((expert, at) => {
      const known = numberOf[Math.floor(at / topK) % layers]!
      expect(known.get(expert) ?? newIds[at]).toBe(newIds[at])
      known.set(expert, newIds[at]!)
    })
    let moved = 0
    numberOf.forEach((numbers, layer) => {
      expect(new Set(numbers.values()).size).toBe(numbers.size)
      for (const [expert, number] of numbers) {
        moved += Number(expert !== number)
        for (const request of [0, 99])
          expect(cellsOf(after, request, layer)[number]).toBe(cellsOf(before, request, layer)[expert])
      }
    })
    expect(moved).toBeGreaterThan(500)
    expect(await shuffledExperts(evaluation, 2).prefillCounts(0, 1)).not.toEqual(after.subarray(0, width))
  })
})

describe('a trace of unrelated requests', () => {
  it('keeps how uneven each request is, under numbers of its own for prompt and decode', async () => {
    const view = unrelatedRequests(calibration, 1)
    const [before, after] = [await calibration.prefillCounts(), await view.prefillCounts()]
    const [decoded, newDecoded] = [await calibration.decodeCounts(), await view.decodeCounts()]
    for (const request of [0, 8]) {
      expect(sorted(cellsOf(after, request, 2))).toEqual(sorted(cellsOf(before, request, 2)))
      expect(cellsOf(after, request, 2)).not.toEqual(cellsOf(before, request, 2))
      expect(sorted(cellsOf(newDecoded, request, 2))).toEqual(sorted(cellsOf(decoded, request, 2)))
      expect(cellsOf(newDecoded, request, 2)).not.toEqual(cellsOf(decoded, request, 2))
    }
    expect(await view.prefillCounts(8, 9)).toEqual(after.subarray(8 * width, 9 * width))
    const ids = await unrelatedRequests(evaluation, 1).decodeExpertIds()
    const perRequest = evaluation.maxSteps * layers * topK
    expect(await unrelatedRequests(evaluation, 1).decodeExpertIds(3, 4)).toEqual(
      ids.subarray(3 * perRequest, 4 * perRequest),
    )
  })
})
