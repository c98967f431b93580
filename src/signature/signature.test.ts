import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { golden } from '../../test/golden.ts'
import { documentFrequency, idfWeights } from './idf.ts'
import { dimensionsOf, type SignatureModel, writeSignature } from './signature.ts'

const model = (parts: Partial<SignatureModel> = {}): SignatureModel => ({
  transform: 'count',
  modelLayers: 3,
  experts: 2,
  layers: Uint16Array.from([0, 2]),
  weights: Float32Array.from([1, 1, 1, 1]),
  ...parts,
})
const signature = (of: SignatureModel, counts: number[]) => {
  const out = new Float32Array(dimensionsOf(of)).fill(9)
  return writeSignature(of, Uint16Array.from(counts), out) ? Array.from(out) : undefined
}

describe('inverse document frequency', () => {
  it.each(golden.idf)(
    'matches NumPy: $name',
    ({ requests, counts = golden.quality.prefill_counts, weights }) => {
      const df = documentFrequency(Uint16Array.from(counts), weights.length)
      idfWeights(df, requests).forEach((weight, cell) => expect(weight).toBeCloseTo(weights[cell]!, 6))
    },
  )
})

describe('a signature', () => {
  it('keeps the chosen layers, weighted, at unit length', () => {
    const of = model({ transform: 'count-idf', weights: Float32Array.from([1, 0, 2, 1]) })
    expect(signature(of, [3, 7, 100, 100, 2, 0])).toEqual([Math.fround(0.6), 0, Math.fround(0.8), 0])
  })

  it('does not depend on the length of a prompt that uses the same experts', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 50 }), { minLength: 6, maxLength: 6 }),
        fc.integer({ min: 2, max: 9 }),
        (counts, times) => {
          const [one, more] = [
            signature(model(), counts),
            signature(
              model(),
              counts.map(n => n * times),
            ),
          ]
          expect(more === undefined).toBe(one === undefined)
          one?.forEach((x, d) => expect(more![d]).toBeCloseTo(x, 6))
        },
      ),
    )
  })

  it('transforms counts as the transform says', () => {
    expect(signature(model({ transform: 'sqrt' }), [9, 0, 0, 0, 16, 0])).toEqual([
      Math.fround(0.6),
      0,
      Math.fround(0.8),
      0,
    ])
    const binary = signature(model({ transform: 'binary' }), [9, 0, 0, 0, 1, 0])!
    expect(binary[0]).toBe(binary[2])
  })

  it('is absent and zero if no kept, weighted expert was used', () => {
    const out = new Float32Array(4).fill(9)
    expect(writeSignature(model(), new Uint16Array([0, 0, 5, 5, 0, 0]), out)).toBe(false)
    expect(Array.from(out)).toEqual([0, 0, 0, 0])
    expect(signature(model({ weights: new Float32Array(4) }), [1, 1, 1, 1, 1, 1])).toBeUndefined()
  })
})
