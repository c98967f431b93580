import { join } from 'node:path'
import * as fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { failure, temporaryFolder } from '../../test/trace-support.ts'
import { createRandom } from '../math/random.ts'
import { withSafetensors } from '../trace/safetensors-file.ts'
import { writeSafetensors } from '../trace/safetensors-write.ts'
import { type PlacementInput, placeExperts } from './expert-placement.ts'
import { type PlacementFile, placementIn, writePlacement } from './placement-file.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const path = join(folder.path, 'placement')

function input(parts: Partial<PlacementInput> & { seed?: number; requests?: number } = {}): PlacementInput {
  const { layers = 2, experts = 8, clusters = 2, ranks = 2, batch = 4, seed = 1, requests = 6 } = parts
  const random = createRandom(seed)
  const patterns = Uint8Array.from({ length: requests * layers * experts }, () =>
    random.uniform() < 0.4 ? 0 : random.below(256),
  )
  return {
    patterns,
    clusterOf: Array.from({ length: requests }, (_, r) => r % clusters),
    clusters,
    layers,
    experts,
    ranks,
    batch,
  }
}

describe('expert placement', () => {
  it('gives the most active expert to the lightest rank with room', () => {
    // Activation 1, 0.8, 0.6, 0.2 at batch 1: {1, 0.2} and {0.8, 0.6} with equal numbers, where linear has
    // {1, 0.8} and {0.6, 0.2}.
    const { rankOf, order, fullest } = placeExperts({
      patterns: Uint8Array.from([255, 204, 153, 51]),
      clusterOf: [0],
      clusters: 1,
      layers: 1,
      experts: 4,
      ranks: 2,
      batch: 1,
    })
    expect(Array.from(rankOf)).toEqual([0, 1, 1, 0])
    expect(Array.from(order)).toEqual([0, 3, 1, 2])
    expect(fullest[0]!.linear).toBeCloseTo(1.8)
    expect(fullest[0]!.own).toBeCloseTo(1.4)
    expect(fullest[0]!.ideal).toBeCloseTo(1.3)
  })

  it('expects an expert to be active in a step if any request of the batch fires it', () => {
    const { fullest } = placeExperts({
      patterns: Uint8Array.from([51, 0]),
      clusterOf: [0],
      clusters: 1,
      layers: 1,
      experts: 2,
      ranks: 1,
      batch: 3,
    })
    expect(fullest[0]!.linear).toBeCloseTo(1 - 0.8 ** 3)
  })

  it('puts the same number of experts on each rank, each expert once, and never beats the mean of the ranks', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(1, 2, 4, 8),
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 64 }),
        fc.nat(),
        (ranks, clusters, batch, seed) => {
          const { rankOf, order, fullest } = placeExperts(
            input({ ranks, clusters, batch, seed, requests: 9 }),
          )
          for (let from = 0; from < rankOf.length; from += 8) {
            for (let rank = 0; rank < ranks; rank++)
              expect(rankOf.subarray(from, from + 8).filter(r => r === rank)).toHaveLength(8 / ranks)
            expect(Array.from(order.subarray(from, from + 8)).toSorted((a, b) => a - b)).toEqual([
              0, 1, 2, 3, 4, 5, 6, 7,
            ])
            order
              .subarray(from, from + 8)
              .forEach((expert, slot) => expect(rankOf[from + expert]).toBe(Math.floor((slot * ranks) / 8)))
          }
          for (const { linear, global, own, ideal } of fullest)
            expect(Math.min(linear, global, own)).toBeGreaterThanOrEqual(ideal - 1e-9)
        },
      ),
    )
  })

  it('rejects ranks that do not divide the experts', () => {
    expect(() => placeExperts(input({ ranks: 3 }))).toThrow('8 experts do not divide evenly among 3 ranks')
  })
})

describe('a placement file', () => {
  const placement = (): PlacementFile => ({ ...placeExperts(input()), model: 'toy', traceSha256: 'ab' })

  it('reads back unchanged', async () => {
    await writePlacement(path, placement())
    expect(await withSafetensors(path, placementIn)).toEqual(placement())
  })

  it.each([
    ['an expert twice', (order: Uint16Array) => (order[1] = order[0]!)],
    ['an expert that is not there', (order: Uint16Array) => (order[0] = 8)],
    ['an expert in a slot of another rank', (order: Uint16Array) => order.set([order[7]!, order[0]!], 0)],
  ])('with %s is rejected, because an engine would lose an expert', async (_, spoil) => {
    const broken = placement()
    spoil(broken.order)
    await writePlacement(path, broken)
    const error = await failure(path, () => withSafetensors(path, placementIn))
    expect(error.code).toBe('ELDR_TENSOR_BAD_VALUE')
    expect(error.message).toContain('each expert once')
  })

  it.each([
    ['ranks', '3', 'ELDR_FILE_BAD_METADATA'],
    ['layers', '3', 'ELDR_TENSOR_BAD_SHAPE'],
    ['fullest_rank', '[[1]]', 'ELDR_FILE_BAD_METADATA'],
    ['format', 'eldr.placement.v2', 'ELDR_FILE_UNKNOWN_VERSION'],
    ['format', 'eldr.trace.v1', 'ELDR_FILE_WRONG_KIND'],
  ])('whose %s is %s is rejected', async (key, value, code) => {
    await writePlacement(path, placement())
    const shape = [2, 2, 8]
    const { metadata, rank, order } = await withSafetensors(path, async file => ({
      metadata: file.metadata,
      rank: await file.readAs('rank', 'U16'),
      order: await file.readAs('order', 'U16'),
    }))
    await writeSafetensors(path, {
      metadata: { ...metadata, [key]: value },
      tensors: { rank: { dtype: 'U16', shape, data: rank }, order: { dtype: 'U16', shape, data: order } },
    })
    expect((await failure(path, () => withSafetensors(path, placementIn))).code).toBe(code)
  })
})
