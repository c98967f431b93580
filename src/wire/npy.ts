/**
 * Header of a NumPy .npy file, format 1.0 to 3.0. Not a Python parser: the header is a dictionary that NumPy
 * writes with repr(), and anything else is rejected.
 */
export interface NpyHeader {
  /** NumPy's letter and the bytes per value: u1, u2, i2, i4 or i8, little-endian. */
  readonly type: keyof typeof BYTES
  readonly shape: readonly number[]
  /** Where the values begin, and their length by type and shape. */
  readonly dataAt: number
  readonly dataBytes: number
}

/** Leading bytes that hold any supported header: NumPy's own has 128 for arrays of few dimensions. */
export const NPY_HEADER_BYTES = 1026

export type NpyValues = Uint8Array | Uint16Array | Int16Array | Int32Array

const BYTES = { u1: 1, u2: 2, i2: 2, i4: 4, i8: 8 } as const
const MAGIC = '\x93NUMPY'
const DESCR = /['"]descr['"]\s*:\s*['"]([<|]?)([a-z]\d{1,2})['"]/
const ORDER = /['"]fortran_order['"]\s*:\s*(True|False)/
const SHAPE = /['"]shape['"]\s*:\s*\(([\d,\s]{0,80})\)/

/** Undefined if the bytes are not such a header, not in C order, or of another type. */
export function readNpyHeader(bytes: Uint8Array): NpyHeader | undefined {
  const start = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.length, NPY_HEADER_BYTES))
  if (start.length < 12 || start.toString('latin1', 0, 6) !== MAGIC) return undefined
  const major = start[6]!
  if (major < 1 || major > 3) return undefined
  const textAt = major === 1 ? 10 : 12
  const dataAt = textAt + (major === 1 ? start.readUInt16LE(8) : start.readUInt32LE(8))
  if (dataAt > start.length) return undefined
  const text = start.toString('latin1', textAt, dataAt)
  const [, byteOrder, type] = DESCR.exec(text) ?? []
  // NumPy writes | for single bytes, which have no byte order.
  if (!isKnown(type) || (byteOrder !== '<' && type !== 'u1') || ORDER.exec(text)?.[1] !== 'False')
    return undefined
  const sizes = SHAPE.exec(text)?.[1]
    ?.split(',')
    .map(size => size.trim())
    .filter(size => size !== '')
  if (sizes === undefined || !sizes.every(size => /^\d{1,10}$/.test(size))) return undefined
  const shape = sizes.map(Number)
  return { type, shape, dataAt, dataBytes: shape.reduce((product, size) => product * size, BYTES[type]) }
}

/** Values of a file whose length matches its header. Values beyond 32 bits are clamped to 32 bits. */
export function npyValues(file: Uint8Array, { type, dataAt, dataBytes }: NpyHeader): NpyValues {
  // A copy begins at 0, so that it is aligned for any header length.
  const data = file.buffer.slice(file.byteOffset + dataAt, file.byteOffset + dataAt + dataBytes)
  if (type === 'u1') return new Uint8Array(data)
  if (type === 'u2') return new Uint16Array(data)
  if (type === 'i2') return new Int16Array(data)
  const words = new Int32Array(data)
  if (type === 'i4') return words
  const values = new Int32Array(words.length / 2)
  for (let v = 0; v < values.length; v++)
    values[v] = words[2 * v + 1] === words[2 * v]! >> 31 ? words[2 * v]! : 2 ** 31 - 1
  return values
}

const isKnown = (type: string | undefined): type is keyof typeof BYTES =>
  type !== undefined && Object.hasOwn(BYTES, type)
