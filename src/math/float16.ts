/**
 * Half-precision floats (IEEE 754 binary16) and bfloat16, kept as their bits in Uint16Array: Node 20 has no Float16Array.
 * Values agree with NumPy's float16 to the bit, rounding to nearest with ties to even.
 */
const word = new Uint32Array(1)
const asFloat = new Float32Array(word.buffer)
let table: Float32Array | undefined

export function float16ToFloat32(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 0x1f
  const mantissa = bits & 0x3ff
  if (exponent === 0) return sign * mantissa * 2 ** -24
  if (exponent === 31) return mantissa === 0 ? sign * Infinity : NaN
  return sign * (1 + mantissa / 1024) * 2 ** (exponent - 15)
}

/** `value` is taken as a float32: a double is rounded to that first, as NumPy does for an array of float32. */
export function float32ToFloat16(value: number): number {
  asFloat[0] = value
  const bits = word[0]!
  const sign = (bits >>> 16) & 0x8000
  const magnitude = bits & 0x7fffffff
  if (magnitude > 0x7f800000) return sign | 0x7e00 // one NaN for all
  if (magnitude >= 0x477ff000) return sign | 0x7c00 // 65,520 and above: half way past the largest half, 65,504
  if (magnitude < 0x38800000) {
    // Below 2^−14 halves are multiples of 2^−24: scaling is exact, and adding 2^23 leaves a float32 no bits for a fraction.
    word[0] = magnitude
    asFloat[0] = asFloat[0]! * 2 ** 24 + 2 ** 23
    return sign | (word[0] & 0x7ff)
  }
  const odd = (magnitude >>> 13) & 1
  return sign | ((magnitude - (112 << 23) + 0xfff + odd) >>> 13)
}

export function bfloat16ToFloat32(bits: number): number {
  word[0] = bits << 16
  return asFloat[0]!
}

/** out[i] = the number whose half-precision bits are bits[i]. */
export function decodeFloat16(bits: Uint16Array, out: Float32Array): void {
  const values = (table ??= allValues())
  for (let i = 0; i < bits.length; i++) out[i] = values[bits[i]!]!
}

function allValues(): Float32Array {
  const values = new Float32Array(65_536)
  for (let pattern = 0; pattern < values.length; pattern++) values[pattern] = float16ToFloat32(pattern)
  return values
}

/** out[i] = the bits of the half nearest to values[i]. */
export function encodeFloat16(values: Float32Array, out: Uint16Array): void {
  for (let i = 0; i < values.length; i++) out[i] = float32ToFloat16(values[i]!)
}

/** out[i] = the number whose bfloat16 bits are bits[i]. `out` must start at a multiple of 4 bytes, as every Float32Array does. */
export function decodeBfloat16(bits: Uint16Array, out: Float32Array): void {
  const words = new Uint32Array(out.buffer, out.byteOffset, out.length)
  for (let i = 0; i < bits.length; i++) words[i] = bits[i]! << 16
}
