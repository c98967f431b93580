/**
 * The element types of safetensors that ELDR knows, and the typed array that holds each. F16 and BF16 stay as their bits
 * (`math/float16.ts` makes numbers of them), BOOL as bytes of 0 and 1. The 8-bit and smaller floats are unknown here on purpose.
 *
 * Files are little-endian, and so is every machine that Node 20 has a release for but one (s390x), so bytes are used as they lie.
 */
export const DTYPES = {
  BOOL: Uint8Array,
  U8: Uint8Array,
  I8: Int8Array,
  I16: Int16Array,
  U16: Uint16Array,
  F16: Uint16Array,
  BF16: Uint16Array,
  I32: Int32Array,
  U32: Uint32Array,
  F32: Float32Array,
  F64: Float64Array,
  I64: BigInt64Array,
  U64: BigUint64Array,
} as const

export type Dtype = keyof typeof DTYPES
export type ArrayOf<D extends Dtype> = InstanceType<(typeof DTYPES)[D]>
/** A tensor's values, row after row. */
export type TensorData = ArrayOf<Dtype>

/** The place of a type in the order above, which is the one by which Python's safetensors lays tensors out, from the last to the first. */
export const DTYPE_RANK = Object.fromEntries(
  Object.keys(DTYPES).map((name, rank) => [name, rank]),
) as Readonly<Record<Dtype, number>>

export function isDtype(name: unknown): name is Dtype {
  return typeof name === 'string' && Object.hasOwn(DTYPES, name)
}

export function bytesPer(dtype: Dtype): number {
  return DTYPES[dtype].BYTES_PER_ELEMENT
}

/** The values of `bytes`, which must begin at the start of its buffer: no copy is made. */
export function viewAs<D extends Dtype>(dtype: D, buffer: ArrayBuffer): ArrayOf<D> {
  return new DTYPES[dtype](buffer) as ArrayOf<D>
}
