import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { bytesOf, failure, temporaryFolder, traceWith } from '../../test/trace-support.ts'
import { createRandom } from '../math/random.ts'
import { withTrace } from '../trace/trace.ts'
import { linearRanks, rankMasks, ranksOfWorker } from './rank-masks.ts'
import { loadReplay, replayOf } from './replay.ts'
import { activeExperts, bitCount, fullestRankExperts, uniteSteps } from '../cost/union.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())

/** A few requests with random experts, and the same as lists of ids. */
function madeUp(layers: number, experts: number, topK: number, seed: number) {
  const random = createRandom(seed)
  const steps = Array.from({ length: 9 }, () => random.below(4))
  const maxSteps = 3
  const ids = Uint16Array.from({ length: steps.length * maxSteps * layers * topK }, () =>
    random.below(experts),
  )
  const idsOf = (request: number, step: number, layer: number) => {
    const at = ((request * maxSteps + step) * layers + layer) * topK
    return ids.subarray(at, at + topK)
  }
  return { replay: replayOf({ layers, experts, topK, ids, maxSteps, steps }), idsOf, random }
}

const shapes = fc.record({
  layers: fc.integer({ min: 1, max: 5 }),
  experts: fc.integer({ min: 1, max: 130 }),
  topK: fc.integer({ min: 1, max: 8 }),
  seed: fc.nat(),
})

/** A random batch: its union by words, and by sets. */
function batchOf({ replay, idsOf, random }: ReturnType<typeof madeUp>) {
  const batch = replay.rows === 0 ? 0 : random.below(11)
  const rows = Array.from({ length: batch }, () => random.below(replay.rows))
  const chosen = rows.map(row => ({ row, step: random.below(replay.steps[row]!) }))
  const union = new Int32Array(replay.wordsPerStep).fill(-1)
  uniteSteps(
    replay.words,
    Int32Array.from(chosen, ({ row, step }) => replay.start[row]! + step * replay.wordsPerStep),
    batch,
    union,
  )
  const sets = Array.from(
    { length: replay.layers },
    (_, layer) =>
      new Set(chosen.flatMap(({ row, step }) => Array.from(idsOf(replay.requestOf[row]!, step, layer)))),
  )
  return { union, sets }
}

describe('the union of a step', () => {
  it('counts the bits of a word', () => {
    fc.assert(
      fc.property(fc.integer(), word => {
        expect(bitCount(word)).toBe((word >>> 0).toString(2).replaceAll('0', '').length)
      }),
    )
  })

  it('equals a set of ids in every layer', () => {
    fc.assert(
      fc.property(shapes, ({ layers, experts, topK, seed }) => {
        const { union, sets } = batchOf(madeUp(layers, experts, topK, seed))
        sets.forEach((set, layer) => {
          const alone = Float64Array.from({ length: layers }, (_, l) => (l === layer ? 1 : 0))
          expect(activeExperts(union, alone)).toBe(set.size)
        })
      }),
    )
  })

  it('has a fullest rank that matches a count by hand', () => {
    fc.assert(
      fc.property(shapes, fc.integer({ min: 1, max: 5 }), ({ layers, experts, topK, seed }, ranks) => {
        const made = madeUp(layers, experts, topK, seed)
        const { union, sets } = batchOf(made)
        const rankOf = Uint16Array.from({ length: layers * experts }, () => made.random.below(ranks))
        const fullest = sets.map((set, layer) => {
          const held = Array.from({ length: ranks }, () => 0)
          for (const expert of set) held[rankOf[layer * experts + expert]!]!++
          return Math.max(...held)
        })
        const weights = new Float64Array(layers).fill(1 / layers)
        const masks = rankMasks(rankOf, layers, experts, ranks)
        expect(fullestRankExperts(union, weights, masks)).toBeCloseTo(
          fullest.reduce((a, b) => a + b, 0) / layers,
          9,
        )
        expect(
          fullestRankExperts(
            union,
            weights,
            rankMasks(
              rankOf.map(() => 0),
              layers,
              experts,
              1,
            ),
          ),
        ).toBe(activeExperts(union, weights))
      }),
    )
  })
})

describe('a placement on ranks', () => {
  it('is linear by default: equal runs of experts', () => {
    expect(Array.from(linearRanks(2, 4, 2))).toEqual([0, 0, 1, 1, 0, 0, 1, 1])
    expect(Array.from(linearRanks(1, 5, 2))).toEqual([0, 0, 0, 1, 1])
  })

  it('serves all workers with one block, and each with its own if there are several', () => {
    const two = { rankOf: Uint16Array.of(0, 1, 1, 0) }
    expect(Array.from(ranksOfWorker(two, 4, 7))).toEqual([0, 1, 1, 0])
    expect(Array.from(ranksOfWorker(two, 2, 1))).toEqual([1, 0])
    expect(() => ranksOfWorker(two, 2, 2)).toThrow('none for decode worker 2')
    expect(() => ranksOfWorker(two, 3, 0)).toThrow('a placement of 4 ranks')
    expect(() => rankMasks(Uint16Array.of(0, 2), 1, 2, 2)).toThrow('rank 2 in a placement for 2 ranks')
  })
})

describe('a replay', () => {
  const path = join(folder.path, 'trace')

  it('holds the requests of a trace with a decode step, without padding', async () => {
    writeFileSync(path, await bytesOf(traceWith()))
    const replay = await withTrace(path, loadReplay)
    expect(replay.rows).toBe(2)
    expect([Array.from(replay.requestOf), Array.from(replay.steps), Array.from(replay.promptTokens)]).toEqual(
      [
        [0, 1],
        [2, 1],
        [3, 4],
      ],
    )
    // [request 0: two steps of two layers][request 1: one step]
    expect(Array.from(replay.words)).toEqual([0b0011, 0b1100, 0b0101, 0b1100, 0b0110, 0b1001])
  })

  it('reports that there is nothing to replay', async () => {
    writeFileSync(
      path,
      await bytesOf(
        traceWith({
          tensors: {
            decode_counts: undefined,
            decode_steps: { dtype: 'U16', shape: [3], data: new Uint16Array(3) },
          },
        }),
      ),
    )
    expect((await failure(path, () => withTrace(path, loadReplay))).code).toBe('ELDR_TRACE_TOO_SMALL')
    writeFileSync(path, await bytesOf(traceWith({ tensors: { decode_expert_ids: undefined } })))
    expect((await failure(path, () => withTrace(path, loadReplay))).code).toBe('ELDR_TENSOR_MISSING')
  })
})
