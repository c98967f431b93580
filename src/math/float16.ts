/**
 * Half-precision floats (IEEE 754 binary16) and bfloat16, stored as bits in Uint16Array because Node 20 has
 * no Float16Array. Values match NumPy's float16 bit for bit.
 */
let table: Float32Array | undefined

function float16ToFloat32(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 0x1f
  const mantissa = bits & 0x3ff
  if (exponent === 0) return sign * mantissa * 2 ** -24
  if (exponent === 31) return mantissa === 0 ? sign * Infinity : NaN
  return sign * (1 + mantissa / 1024) * 2 ** (exponent - 15)
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

/**
 * out[i] = the number whose bfloat16 bits are bits[i]. `out` must start at a multiple of 4 bytes, as every
 * Float32Array does.
 */
export function decodeBfloat16(bits: Uint16Array, out: Float32Array): void {
  const words = new Uint32Array(out.buffer, out.byteOffset, out.length)
  for (let i = 0; i < bits.length; i++) words[i] = bits[i]! << 16
}
