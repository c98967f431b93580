/**
 * The safetensors element types that ELDR supports, and the typed array for each. F16 and BF16 are kept as
 * bits (`math/float16.ts` converts them), BOOL as bytes of 0 and 1. Floats of 8 bits and fewer are not
 * supported on purpose.
 *
 * Files are little-endian, and so is every platform of Node 20 except s390x, so bytes are used without
 * conversion.
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

/**
 * Position of a type in the order above. Python's safetensors lays tensors out by it, from the last type to
 * the first.
 */
export const DTYPE_RANK = Object.fromEntries(
  Object.keys(DTYPES).map((name, rank) => [name, rank]),
) as Readonly<Record<Dtype, number>>

export function isDtype(name: unknown): name is Dtype {
  return typeof name === 'string' && Object.hasOwn(DTYPES, name)
}

export function bytesPer(dtype: Dtype): number {
  return DTYPES[dtype].BYTES_PER_ELEMENT
}

/** The values of `bytes`, which must begin at the start of its buffer; no copy is made. */
export function viewAs<D extends Dtype>(dtype: D, buffer: ArrayBuffer): ArrayOf<D> {
  return new DTYPES[dtype](buffer) as ArrayOf<D>
}
