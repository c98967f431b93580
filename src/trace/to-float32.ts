import { decodeBfloat16, decodeFloat16 } from '../math/float16.ts'
import type { Dtype, TensorData } from './dtype.ts'

/** The values of a tensor as float32, rounded if their type has more digits. F32 is returned as it is. */
export function toFloat32(dtype: Dtype, data: TensorData): Float32Array {
  if (data instanceof Float32Array) return data
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) return Float32Array.from(data, Number)
  const out = new Float32Array(data.length)
  if (dtype === 'F16') decodeFloat16(data as Uint16Array, out)
  else if (dtype === 'BF16') decodeBfloat16(data as Uint16Array, out)
  else out.set(data)
  return out
}
