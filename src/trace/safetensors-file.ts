/**
 * A safetensors file open for reading. Its header is in memory; tensors are read on demand, whole or by rows,
 * so that a file may be larger than memory. The open handle keeps reading the same file when another is
 * renamed over its path.
 */
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { totalmem } from 'node:os'
import { EldrError } from '../errors.ts'
import { type ArrayOf, bytesPer, type Dtype, type TensorData, viewAs } from './dtype.ts'
import { quoted } from './quoted.ts'
import { headerEnd, parseHeader, type TensorInfo } from './safetensors-header.ts'
import { toFloat32 } from './to-float32.ts'

export interface SafetensorsFile {
  readonly path: string
  /** Bytes. */
  readonly size: number
  readonly metadata: Readonly<Record<string, string>>
  readonly tensors: ReadonlyMap<string, TensorInfo>
  /** Where a tensor lies; throws ELDR_TENSOR_MISSING if it is absent. */
  info(name: string): TensorInfo
  /** The values as stored; F16 and BF16 as bits. */
  read(name: string): Promise<TensorData>
  /** The same for a tensor of a required type; throws ELDR_TENSOR_BAD_TYPE otherwise. */
  readAs<D extends Dtype>(name: string, dtype: D): Promise<ArrayOf<D>>
  /** Rows `from` up to but not including `to` of the first dimension; reads only their bytes. */
  readRows(name: string, from: number, to: number): Promise<TensorData>
  /** Values as numbers, rounded to float32 if they have more digits; rows as in `readRows` (default: all). */
  readFloat32(name: string, from?: number, to?: number): Promise<Float32Array>
  /** Hexadecimal hash of the whole file. */
  sha256(): Promise<string>
  close(): Promise<void>
}

/**
 * One read(2) moves less than 2 GiB; this is well below that and large enough that the call's overhead does
 * not matter.
 */
const READ_CHUNK = 64 << 20
const HASH_CHUNK = 1 << 20

export async function openSafetensors(path: string): Promise<SafetensorsFile> {
  const handle = await openRegular(path)
  try {
    const { size } = await handle.stat()
    const prefix = await readBytes(handle, path, 0, Math.min(size, 9))
    const header = await readBytes(handle, path, 0, headerEnd(new Uint8Array(prefix), size, path))
    return fileOf(handle, path, size, parseHeader(new Uint8Array(header), size, path))
  } catch (error) {
    await handle.close()
    throw error
  }
}

/** Opens the file, runs `use`, and always closes it. */
export async function withSafetensors<T>(
  path: string,
  use: (file: SafetensorsFile) => Promise<T>,
): Promise<T> {
  const file = await openSafetensors(path)
  try {
    return await use(file)
  } finally {
    await file.close()
  }
}

function fileOf(
  handle: FileHandle,
  path: string,
  size: number,
  { metadata, tensors }: Pick<SafetensorsFile, 'metadata' | 'tensors'>,
): SafetensorsFile {
  function info(name: string): TensorInfo {
    const tensor = tensors.get(name)
    if (tensor === undefined)
      throw new EldrError('ELDR_TENSOR_MISSING', { file: path, expected: `tensor ${quoted(name)}` })
    return tensor
  }

  async function read(name: string): Promise<TensorData> {
    const { dtype, begin, end } = info(name)
    return viewAs(dtype, await readBytes(handle, path, begin, end))
  }

  async function readAs<D extends Dtype>(name: string, dtype: D): Promise<ArrayOf<D>> {
    const found = info(name).dtype
    if (found !== dtype) {
      throw new EldrError('ELDR_TENSOR_BAD_TYPE', {
        file: path,
        found: `${found} for ${quoted(name)}`,
        expected: dtype,
      })
    }
    return (await read(name)) as ArrayOf<D>
  }

  async function readRows(name: string, from: number, to: number): Promise<TensorData> {
    const { dtype, shape, begin } = info(name)
    const rows = shape[0] ?? 0
    if (!Number.isInteger(from) || !Number.isInteger(to) || from < 0 || to < from || to > rows) {
      throw new RangeError(`rows ${from} to ${to} of ${quoted(name)}, which has ${rows}`)
    }
    const rowBytes = shape.slice(1).reduce((product, length) => product * length, bytesPer(dtype))
    return viewAs(dtype, await readBytes(handle, path, begin + from * rowBytes, begin + to * rowBytes))
  }

  async function readFloat32(name: string, from?: number, to?: number): Promise<Float32Array> {
    const { dtype, shape } = info(name)
    const whole = from === undefined && to === undefined
    return toFloat32(dtype, whole ? await read(name) : await readRows(name, from ?? 0, to ?? shape[0] ?? 0))
  }

  async function sha256(): Promise<string> {
    const hash = createHash('sha256')
    const chunk = new ArrayBuffer(Math.min(HASH_CHUNK, size))
    for (let at = 0; at < size; at += chunk.byteLength) {
      const bytes = new Uint8Array(chunk, 0, Math.min(chunk.byteLength, size - at))
      await fill(handle, path, bytes, at)
      hash.update(bytes)
    }
    return hash.digest('hex')
  }

  return {
    path,
    size,
    metadata,
    tensors,
    info,
    read,
    readAs,
    readRows,
    readFloat32,
    sha256,
    close: () => handle.close(),
  }
}

/**
 * Checks what the path is before opening it, since opening a FIFO waits for a writer; O_NONBLOCK covers one
 * created in between.
 */
async function openRegular(path: string): Promise<FileHandle> {
  try {
    if (!(await stat(path)).isFile()) throw new Error('something other than a regular file')
    const handle = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0))
    if ((await handle.stat()).isFile()) return handle
    await handle.close()
    throw new Error('something other than a regular file')
  } catch (cause) {
    throw unreadable(path, cause)
  }
}

/**
 * Bytes `begin` up to but not including `end`, in their own buffer: tensors may start at any byte, typed
 * arrays may not.
 */
async function readBytes(handle: FileHandle, path: string, begin: number, end: number): Promise<ArrayBuffer> {
  const buffer = allocate(path, end - begin)
  await fill(handle, path, new Uint8Array(buffer), begin)
  return buffer
}

function allocate(path: string, bytes: number): ArrayBuffer {
  try {
    // If the system overcommits memory, the process would be killed instead of getting an error.
    if (bytes > totalmem()) throw new RangeError(`this machine has ${totalmem()} bytes`)
    return new ArrayBuffer(bytes)
  } catch (cause) {
    const found = `${bytes} bytes to hold in memory at once`
    throw new EldrError('ELDR_FILE_UNREADABLE', {
      file: path,
      found,
      todo: 'Use a machine with more memory, or a smaller file.',
      cause,
    })
  }
}

async function fill(handle: FileHandle, path: string, bytes: Uint8Array, position: number): Promise<void> {
  for (let at = 0; at < bytes.length;) {
    const { bytesRead } = await handle
      .read(bytes, at, Math.min(bytes.length - at, READ_CHUNK), position + at)
      .catch((cause: unknown) => {
        throw unreadable(path, cause)
      })
    if (bytesRead === 0) {
      const [found, expected] = [`${position + at} bytes`, `${position + bytes.length}`]
      throw new EldrError('ELDR_FILE_TRUNCATED', {
        file: path,
        found,
        expected,
        todo: 'The file was truncated while it was read; try again.',
      })
    }
    at += bytesRead
  }
}

function unreadable(file: string, cause: unknown): EldrError {
  return new EldrError('ELDR_FILE_UNREADABLE', {
    file,
    found: cause instanceof Error ? cause.message : String(cause),
    cause,
  })
}
