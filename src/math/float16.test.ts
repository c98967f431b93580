import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { bfloat16ToFloat32, decodeBfloat16, decodeFloat16, encodeFloat16, float16ToFloat32, float32ToFloat16 } from './float16.ts'

const patterns = Uint16Array.from({ length: 65_536 }, (_, bits) => bits)
const isNaNPattern = (bits: number) => (bits & 0x7fff) > 0x7c00

describe('float16', () => {
  it('gives back every one of the 65,536 bit patterns that is not NaN', () => {
    const wrong = [...patterns].filter(bits => !isNaNPattern(bits) && float32ToFloat16(float16ToFloat32(bits)) !== bits)
    expect(wrong).toEqual([])
  })

  it('reads every NaN pattern as NaN and writes NaN as one', () => {
    expect([...patterns].filter(bits => isNaNPattern(bits) !== Number.isNaN(float16ToFloat32(bits)))).toEqual([])
    expect(float32ToFloat16(NaN) & 0x7fff).toBe(0x7e00)
  })

  it('keeps the sign of zero', () => {
    expect([float32ToFloat16(0), float32ToFloat16(-0)]).toEqual([0, 0x8000])
    expect(Object.is(float16ToFloat32(0x8000), -0)).toBe(true)
  })

  it('rounds a tie to the even neighbour, also between subnormals and up into infinity', () => {
    expect(float32ToFloat16(1 + 2 ** -11)).toBe(0x3c00)
    expect(float32ToFloat16(1 + 3 * 2 ** -11)).toBe(0x3c02)
    expect(float32ToFloat16(2 ** -25)).toBe(0)
    expect(float32ToFloat16(3 * 2 ** -25)).toBe(2)
    expect(float32ToFloat16(65_519)).toBe(0x7bff)
    expect(float32ToFloat16(65_520)).toBe(0x7c00)
    expect(float32ToFloat16(-1e30)).toBe(0xfc00)
  })

  it('takes the nearest half of any float32', () => {
    fc.assert(
      fc.property(fc.float({ noNaN: true, noDefaultInfinity: true, min: -65_504, max: 65_504 }), value => {
        const bits = float32ToFloat16(value)
        const error = Math.abs(float16ToFloat32(bits) - value)
        for (const neighbour of [bits - 1, bits + 1]) {
          // A neighbour across zero or beyond the largest half is none.
          if ((neighbour & 0x8000) !== (bits & 0x8000) || (neighbour & 0x7fff) >= 0x7c00) continue
          expect(error).toBeLessThanOrEqual(Math.abs(float16ToFloat32(neighbour) - value))
        }
      }),
      { numRuns: 2_000 },
    )
  })

  it('does to arrays what it does to numbers', () => {
    const decoded = new Float32Array(patterns.length)
    decodeFloat16(patterns, decoded)
    expect(decoded).toEqual(Float32Array.from(patterns, float16ToFloat32))
    const encoded = new Uint16Array(patterns.length)
    encodeFloat16(decoded, encoded)
    expect(encoded).toEqual(Uint16Array.from(decoded, float32ToFloat16))
    decodeBfloat16(patterns, decoded)
    expect(decoded).toEqual(Float32Array.from(patterns, bfloat16ToFloat32))
  })

  it('reads a bfloat16 as the upper half of a float32', () => {
    expect([0x3f80, 0xc2f7, 0x7f80, 0x0001].map(bfloat16ToFloat32)).toEqual([1, -123.5, Infinity, 2 ** -133])
  })
})
