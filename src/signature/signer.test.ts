import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { dimensionsOf, type SignatureModel, writeSignature } from './signature.ts'
import { createSigner } from './signer.ts'

const model = (transform: SignatureModel['transform'], weights: number[]): SignatureModel => ({
  transform,
  modelLayers: 4,
  experts: 5,
  layers: Uint16Array.from([1, 3]),
  weights: Float32Array.from(weights),
})
// The smallest weight above 0 is log((N + 1)/N) for N calibration requests.
const weights = fc.array(fc.oneof(fc.constant(0), fc.double({ min: 1e-5, max: 4, noNaN: true })), {
  minLength: 10,
  maxLength: 10,
})
const counts = fc.array(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 65_535 })), {
  minLength: 20,
  maxLength: 20,
})

describe('a signer', () => {
  it('signs like the plain loop, for every transform and both types of values', () => {
    fc.assert(
      fc.property(
        fc.constantFrom<SignatureModel['transform']>('count', 'count-idf', 'sqrt', 'binary', 'recent'),
        weights,
        counts,
        (transform, w, values) => {
          const of = model(transform, w)
          for (const captured of [Uint16Array.from(values), Float32Array.from(values)]) {
            const expected = new Float32Array(dimensionsOf(of))
            const exists = writeSignature(of, captured, expected)
            const signature = createSigner(of).sign(captured)
            expect(signature !== undefined).toBe(exists)
            signature?.forEach((x, d) => expect(x).toBeCloseTo(expected[d]!, 5))
          }
        },
      ),
    )
  })

  it('keeps no state between requests, and rejects values of another size', () => {
    const signer = createSigner(model('count', [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]))
    const one = Uint16Array.from({ length: 20 }, (_, c) => c)
    const first = signer.sign(one)!
    signer.sign(new Uint16Array(20).fill(9))
    expect(signer.sign(one)).toEqual(first)
    expect(signer.sign(new Uint16Array(20))).toBeUndefined()
    expect(signer.sign(new Uint16Array(19))).toBeUndefined()
  })
})
