/** Lines of a file of any length with their places, so that one can be read again without the others. Memory for one line at a time. */
import { createHash, type Hash } from 'node:crypto'
import { type FileHandle, open } from 'node:fs/promises'
import { EldrError } from '../errors.ts'

export interface JsonlLine {
  /** From 1, blank lines counted. */
  readonly number: number
  /** Bytes from the start of the file. */
  readonly at: number
  readonly bytes: Buffer
}

const CHUNK = 1 << 20
const NEW_LINE = 10

/** Every line that is not blank. `hash` is fed with the whole file. */
export async function* jsonlLines(handle: FileHandle, hash?: Hash): AsyncGenerator<JsonlLine, void, undefined> {
  let pieces: Buffer[] = [] // of a line that goes on
  let [at, end, number] = [0, 0, 1]
  const line = (last: Buffer): JsonlLine | undefined => {
    const bytes = pieces.length === 0 ? last : Buffer.concat([...pieces, last])
    pieces = []
    const found = { number, at, bytes }
    at += bytes.length + 1
    number++
    return isBlank(bytes) ? undefined : found
  }
  for (;;) {
    const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(CHUNK), 0, CHUNK, end)
    if (bytesRead === 0) break
    end += bytesRead
    const chunk = buffer.subarray(0, bytesRead)
    hash?.update(chunk)
    let from = 0
    for (let to = chunk.indexOf(NEW_LINE); to >= 0; from = to + 1, to = chunk.indexOf(NEW_LINE, from)) {
      const found = line(chunk.subarray(from, to))
      if (found !== undefined) yield found
    }
    if (from < chunk.length) pieces.push(chunk.subarray(from))
  }
  const last = pieces.length === 0 ? undefined : line(Buffer.alloc(0))
  if (last !== undefined) yield last
}

/** Space, tabulator, carriage return. */
function isBlank(bytes: Buffer): boolean {
  return bytes.every(byte => byte === 32 || byte === 9 || byte === 13)
}

/** A failure to open or to read is ELDR_FILE_UNREADABLE. */
export async function openLines(path: string): Promise<FileHandle> {
  try {
    const handle = await open(path, 'r')
    if ((await handle.stat()).isFile()) return handle
    await handle.close()
    throw new Error('it is no regular file')
  } catch (cause) {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: path, cause })
  }
}

export const sha256 = (): Hash => createHash('sha256')
