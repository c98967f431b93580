/**
 * Writes safetensors files. The same tensors give the same bytes, and those are the bytes that Python's
 * safetensors writes (with one metadata key; with more, Python's order is random and ours is the given one):
 * tensors by type and then by name, so that each is aligned to its element size, and a header padded with
 * spaces to a multiple of 8.
 */
import { bytesPer, type Dtype, DTYPE_RANK, DTYPES } from './dtype.ts'
import { MAX_HEADER } from './safetensors-header.ts'
import { writeFileAtomic } from './write-atomic.ts'

/**
 * Values in the typed array of their type (see dtype.ts) or as raw bytes; in pieces if they need not be in
 * memory at once.
 */
export type TensorSource = ArrayBufferView | Iterable<ArrayBufferView> | AsyncIterable<ArrayBufferView>

export interface TensorToWrite {
  readonly dtype: Dtype
  readonly shape: readonly number[]
  readonly data: TensorSource
}

export interface SafetensorsContents {
  /** Omitted from the file if empty. */
  readonly metadata?: Readonly<Record<string, string>>
  readonly tensors: Readonly<Record<string, TensorToWrite>>
}

/** Replaces the file atomically, or leaves it as it was. */
export async function writeSafetensors(path: string, contents: SafetensorsContents): Promise<void> {
  await writeFileAtomic(path, encodeSafetensors(contents))
}

/**
 * The file's bytes, in pieces. Contents that do not match their shape are a bug in the caller: throws a
 * RangeError.
 */
export async function* encodeSafetensors({
  metadata = {},
  tensors,
}: SafetensorsContents): AsyncGenerator<Uint8Array, void, undefined> {
  const sorted = Object.entries(tensors).sort(
    ([nameA, a], [nameB, b]) =>
      DTYPE_RANK[b.dtype] - DTYPE_RANK[a.dtype] || Buffer.compare(Buffer.from(nameA), Buffer.from(nameB)),
  )
  yield encodeHeader(metadata, sorted)
  for (const [name, tensor] of sorted) yield* encodeData(name, tensor)
}

function encodeHeader(
  metadata: Readonly<Record<string, string>>,
  sorted: readonly [string, TensorToWrite][],
): Uint8Array {
  const members = Object.keys(metadata).length > 0 ? [`"__metadata__":${JSON.stringify(metadata)}`] : []
  let at = 0
  for (const [name, { dtype, shape, data }] of sorted) {
    if (name === '__metadata__') throw new RangeError('a tensor cannot be named __metadata__')
    const length = byteLength(dtype, shape)
    if (ArrayBuffer.isView(data) && data.byteLength !== length)
      throw wrongLength(name, data.byteLength, length)
    members.push(
      `${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets: [at, at + length] })}`,
    )
    at += length
  }
  const json = Buffer.from(`{${members.join()}}`)
  const length = Math.ceil(json.length / 8) * 8
  if (length > MAX_HEADER)
    throw new RangeError(`a header of ${length} bytes; at most ${MAX_HEADER} can be read back`)
  const header = Buffer.alloc(8 + length, ' ')
  header.writeBigUInt64LE(BigInt(length))
  header.set(json, 8)
  return header
}

async function* encodeData(
  name: string,
  { dtype, shape, data }: TensorToWrite,
): AsyncGenerator<Uint8Array, void, undefined> {
  const length = byteLength(dtype, shape)
  let written = 0
  for await (const piece of ArrayBuffer.isView(data) ? [data] : data) {
    if (!(piece instanceof DTYPES[dtype]) && !(piece instanceof Uint8Array)) {
      throw new RangeError(`tensor ${name}: ${piece.constructor.name} for ${dtype}`)
    }
    written += piece.byteLength
    if (written > length) throw wrongLength(name, written, length)
    yield new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength)
  }
  if (written !== length) throw wrongLength(name, written, length)
}

function byteLength(dtype: Dtype, shape: readonly number[]): number {
  const length = shape.reduce((product, size) => product * size, bytesPer(dtype))
  if (!Number.isSafeInteger(length) || shape.some(size => !Number.isSafeInteger(size) || size < 0))
    throw new RangeError(`shape ${shape.join()}`)
  return length
}

function wrongLength(name: string, found: number, expected: number): RangeError {
  return new RangeError(`tensor ${name}: ${found} bytes or more where its shape needs ${expected}`)
}
