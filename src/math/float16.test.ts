import { describe, expect, it } from 'vitest'
import { decodeBfloat16, decodeFloat16 } from './float16.ts'

const halves = (...bits: number[]) => {
  const out = new Float32Array(bits.length)
  decodeFloat16(Uint16Array.from(bits), out)
  return Array.from(out)
}

describe('half floats', () => {
  it('match IEEE 754, including subnormals and infinities', () => {
    expect(halves(0x3c00, 0xc000, 0x3555, 0x0001, 0x03ff, 0x0400, 0x7bff)).toEqual([
      1,
      -2,
      0.333251953125,
      2 ** -24,
      1023 * 2 ** -24,
      2 ** -14,
      65_504,
    ])
    expect(halves(0x7c00, 0xfc00, 0x7e00)).toEqual([Infinity, -Infinity, NaN])
    expect(Object.is(halves(0x8000)[0], -0)).toBe(true)
  })

  it('increase with their bits over all finite patterns', () => {
    const values = halves(...Array.from({ length: 0x7c00 }, (_, bits) => bits))
    expect(values.every((value, at) => at === 0 || value > values[at - 1]!)).toBe(true)
  })
})

describe('bfloat16', () => {
  it('is the upper half of a float32', () => {
    const out = new Float32Array(4)
    decodeBfloat16(Uint16Array.from([0x3f80, 0xc2f7, 0x7f80, 0x0001]), out)
    expect(Array.from(out)).toEqual([1, -123.5, Infinity, 2 ** -133])
  })
})
