/**
 * The header of a safetensors file: 8 bytes of length, then JSON that says which tensor lies where. Pure;
 * trusts nothing.
 *
 * It rejects what Python's safetensors rejects, and also what Python accepts but no writer should produce:
 * two tensors or two metadata keys of one name (JSON.parse would silently keep the last), and unknown fields.
 * An accepted header covers the file's bytes exactly once, so a tensor is never longer than the file.
 */
import { EldrError, type ErrorDetail } from '../errors.ts'
import { bytesPer, type Dtype, DTYPES, isDtype } from './dtype.ts'
import { checkSpelling } from './json-spelling.ts'
import { quoted } from './quoted.ts'

export interface TensorInfo {
  readonly name: string
  readonly dtype: Dtype
  readonly shape: readonly number[]
  /** First byte and the byte after the last, counted from the start of the file. */
  readonly begin: number
  readonly end: number
}

export interface SafetensorsHeader {
  /** Has no prototype, so that it has only the file's keys. */
  readonly metadata: Readonly<Record<string, string>>
  /** In byte order. */
  readonly tensors: ReadonlyMap<string, TensorInfo>
  /** Where the first tensor's bytes begin in the file. */
  readonly dataOffset: number
}

/** The limit of Python's safetensors, in bytes. */
export const MAX_HEADER = 100_000_000
const MAX_DIMENSIONS = 8
const ENTRY_FIELDS = ['data_offsets', 'dtype', 'shape']
const LENGTH_BYTES = 8
const OPENING_BRACE = 0x7b

/**
 * Bytes from the start of the file to the end of its header, from the file's first 9 bytes.
 *
 * A header that would end past the end of the file means a truncated file if a header seems to begin there,
 * and otherwise that the file is not safetensors.
 */
export function headerEnd(bytes: Uint8Array, fileSize: number, file: string): number {
  if (fileSize < LENGTH_BYTES + 2) throw truncated(file, fileSize, `at least ${LENGTH_BYTES + 2} bytes`)
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getBigUint64(0, true))
  if (length > MAX_HEADER || bytes[LENGTH_BYTES] !== OPENING_BRACE) {
    const found = length > MAX_HEADER ? `a header of ${length} bytes` : 'a header that does not begin with {'
    throw new EldrError('ELDR_FILE_NOT_SAFETENSORS', { file, found })
  }
  if (length < 2) throw badHeader(file, { found: `a header of ${length} bytes` })
  if (LENGTH_BYTES + length > fileSize) throw truncated(file, fileSize, `a header of ${length} bytes`)
  return LENGTH_BYTES + length
}

/** `bytes` holds the file at least up to the end of the header. */
export function parseHeader(bytes: Uint8Array, fileSize: number, file: string): SafetensorsHeader {
  const dataOffset = headerEnd(bytes, fileSize, file)
  if (bytes.length < dataOffset)
    throw new RangeError(`parseHeader needs ${dataOffset} bytes, has ${bytes.length}`)
  const entries = Object.entries(parseJson(bytes.subarray(LENGTH_BYTES, dataOffset), file))

  const metadata: Record<string, string> = Object.create(null) as Record<string, string>
  const tensors: TensorInfo[] = []
  for (const [name, value] of entries) {
    if (name === '__metadata__') Object.assign(metadata, checkMetadata(value, file))
    else tensors.push(checkEntry(name, value, dataOffset, file))
  }
  tensors.sort((a, b) => a.begin - b.begin || a.end - b.end)
  checkCover(tensors, dataOffset, fileSize, file)
  return { metadata, tensors: new Map(tensors.map(tensor => [tensor.name, tensor])), dataOffset }
}

function parseJson(bytes: Uint8Array, file: string): object {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    checkSpelling(text)
    return JSON.parse(text) as object // an object, since the first byte is {
  } catch (cause) {
    // V8 quotes the text around the error, whatever it contains.
    const found = cause instanceof Error ? cause.message.replaceAll(/\p{Cc}/gu, '?') : 'no JSON'
    throw badHeader(file, { found, cause })
  }
}

function checkMetadata(value: unknown, file: string): Record<string, string> {
  if (!isObject(value))
    throw badHeader(file, { found: `__metadata__ ${quoted(value)}`, expected: 'an object of strings' })
  for (const [key, text] of Object.entries(value)) {
    if (typeof text !== 'string')
      throw badHeader(file, { found: `metadata ${quoted(key)}: ${quoted(text)}`, expected: 'a string' })
  }
  return value as Record<string, string>
}

function checkEntry(name: string, value: unknown, dataOffset: number, file: string): TensorInfo {
  const of = `tensor ${quoted(name)}`
  if (!isObject(value) || Object.keys(value).sort().join() !== ENTRY_FIELDS.join()) {
    throw badHeader(file, {
      found: `${of}: ${quoted(value)}`,
      expected: 'an object of dtype, shape and data_offsets',
    })
  }
  const {
    dtype,
    shape,
    data_offsets: offsets,
  } = value as { dtype: unknown; shape: unknown; data_offsets: unknown }
  if (!isDtype(dtype))
    throw badHeader(file, {
      found: `${of} of type ${quoted(dtype)}`,
      expected: `one of ${Object.keys(DTYPES).join(' ')}`,
    })
  if (!isSizes(shape) || shape.length > MAX_DIMENSIONS) {
    throw badHeader(file, {
      found: `${of} of shape ${quoted(shape)}`,
      expected: `at most ${MAX_DIMENSIONS} integers of at least 0`,
    })
  }
  if (!isSizes(offsets) || offsets.length !== 2 || offsets[0]! > offsets[1]!) {
    throw badHeader(file, {
      found: `${of} at ${quoted(offsets)}`,
      expected: 'its first byte and the byte after its last',
    })
  }
  // Products beyond 2^53 are not exact, but they do not get smaller either, unless a later size is 0.
  const length = shape.reduce(
    (product, size) => (Number.isSafeInteger(product * size) ? product * size : Infinity),
    bytesPer(dtype),
  )
  const [begin, end] = offsets as [number, number]
  if (length !== end - begin) {
    throw badHeader(file, {
      found: `${of} of ${end - begin} bytes`,
      expected: `${length} for ${dtype} ${quoted(shape)}`,
    })
  }
  return { name, dtype, shape, begin: dataOffset + begin, end: dataOffset + end }
}

/** Every byte after the header belongs to exactly one tensor. Tensors are in byte order. */
function checkCover(
  tensors: readonly TensorInfo[],
  dataOffset: number,
  fileSize: number,
  file: string,
): void {
  let covered = dataOffset
  for (const { name, begin, end } of tensors) {
    if (begin !== covered) {
      const found =
        begin < covered
          ? 'overlaps the one before it'
          : `begins ${begin - covered} bytes after the one before it`
      throw badHeader(file, {
        found: `tensor ${quoted(name)} that ${found}`,
        expected: 'tensors without gap or overlap',
      })
    }
    covered = end
  }
  if (covered > fileSize) throw truncated(file, fileSize, `${covered} bytes`)
  if (covered < fileSize)
    throw badHeader(file, { found: `${fileSize - covered} bytes that belong to no tensor` })
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.every(size => Number.isSafeInteger(size) && (size as number) >= 0)
}

function badHeader(file: string, detail: ErrorDetail): EldrError {
  return new EldrError('ELDR_FILE_BAD_HEADER', { file, ...detail })
}

function truncated(file: string, fileSize: number, expected: string): EldrError {
  return new EldrError('ELDR_FILE_TRUNCATED', { file, found: `${fileSize} bytes`, expected })
}
