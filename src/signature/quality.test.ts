import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { golden } from '../../test/golden.ts'
import { spearmanBySorting } from '../../test/oracles/ranks.ts'
import { allPairsOf, drawPairs, type Pairs } from '../math/pairs.ts'
import { createRandom } from '../math/random.ts'
import { documentFrequency, idfWeights } from './idf.ts'
import { layerFill } from './layer-fill.ts'
import { selectLayers } from './layer-selection.ts'
import { createPairSpace, maxPairs } from './pair-space.ts'
import { SHAPES } from './signature.ts'
import { TRANSFORM, type TransformName } from './transform.ts'

const { requests, layers, experts } = golden.quality
const counts = Uint16Array.from(golden.quality.prefill_counts)
const decode = Uint16Array.from(golden.quality.decode_counts)
const idf = idfWeights(documentFrequency(counts, layers * experts), requests)
const rows = Uint32Array.from({ length: requests }, (_, r) => r)
const all = drawPairs(requests, Infinity, createRandom(0))

function spaceOf(transform: TransformName, pairs: Pairs = all) {
  const space = createPairSpace({ requests, layers, experts }, pairs)
  space.setTarget(layerFill({ values: decode, layers, experts, rows }, 'count', idf))
  space.load(layerFill({ values: counts, layers, experts, rows }, transform, idf))
  return space
}

/** ρ by its definition: vectors, cosines, ranks. */
function rhoByDefinition(transform: TransformName, kept: readonly number[], pairs: Pairs): number {
  const { shape, idf: weighted } = TRANSFORM[transform]
  const vector = (
    values: Uint16Array,
    request: number,
    of: readonly number[],
    map: (value: number, cell: number) => number,
  ) =>
    of.flatMap(layer =>
      Array.from({ length: experts }, (_, e) =>
        map(values[(request * layers + layer) * experts + e]!, layer * experts + e),
      ),
    )
  const cosine = (a: number[], b: number[]) =>
    a.reduce((sum, x, d) => sum + x * b[d]!, 0) / (Math.hypot(...a) * Math.hypot(...b) || 1)
  const every = Array.from({ length: layers }, (_, layer) => layer)
  const [signatures, patterns] = [
    rows.reduce<number[][]>(
      (list, r) => [
        ...list,
        vector(counts, r, kept, (value, cell) => SHAPES[shape](value) * (weighted ? idf[cell]! : 1)),
      ],
      [],
    ),
    rows.reduce<number[][]>((list, r) => [...list, vector(decode, r, every, value => value)], []),
  ]
  const similarity = (vectors: number[][]) =>
    Array.from(pairs.i, (a, p) => Math.fround(cosine(vectors[a]!, vectors[pairs.j[p]!]!)))
  return spearmanBySorting(similarity(signatures), similarity(patterns))
}

describe('signature quality ρ', () => {
  it('covers all pairs if more are requested than there are', () => {
    expect(all.i.length).toBe(golden.quality.pairs)
    expect(all.i.length).toBe(allPairsOf(requests))
  })

  it.each(Object.entries(golden.quality.transforms))(
    'of %s over all pairs matches NumPy',
    (name, { rho }) => {
      expect(spaceOf(name as TransformName).rho([0, 1, 2, 3])).toBeCloseTo(rho, 4)
    },
  )

  it.each(Object.entries(golden.quality.transforms).filter(([, { greedy }]) => greedy !== undefined))(
    'selects layers for %s like NumPy',
    (name, { greedy }) => {
      const { order, rho, peak } = selectLayers(spaceOf(name as TransformName), layers)
      expect(order).toEqual(greedy!.order)
      expect(peak).toBe(greedy!.peak)
      rho.forEach((value, step) => expect(value).toBeCloseTo(greedy!.rho[step]!, 4))
    },
  )

  it('matches its definition for any transform, layers and pairs', () => {
    fc.assert(
      fc.property(
        fc.constantFrom<TransformName>('count', 'count-idf', 'sqrt', 'binary'),
        fc.uniqueArray(fc.integer({ min: 0, max: layers - 1 }), { minLength: 1 }),
        fc.integer({ min: 20, max: 400 }),
        fc.nat(),
        (transform, kept, count, seed) => {
          const pairs = drawPairs(requests, count, createRandom(seed))
          expect(spaceOf(transform, pairs).rho(kept)).toBeCloseTo(rhoByDefinition(transform, kept, pairs), 3)
        },
      ),
      { numRuns: 25 },
    )
  })

  it('of one more layer equals that of all layers together', () => {
    const space = spaceOf('count-idf')
    space.clear()
    space.keep(2)
    expect(space.rhoWith(0)).toBeCloseTo(space.rho([2, 0]), 9)
  })

  it('reports how many pairs fit into memory', () => {
    expect(maxPairs({ requests: 1000, layers: 48, experts: 128 })).toBeGreaterThan(allPairsOf(1000))
    expect(maxPairs({ requests: 100_000, layers: 48, experts: 128 })).toBeLessThan(allPairsOf(100_000))
  })
})
