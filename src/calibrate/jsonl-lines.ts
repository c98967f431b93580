/**
 * Reads the lines of a file with their positions, so that single lines can be read again. Memory holds one
 * line at a time.
 */
import { createHash, type Hash } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { EldrError } from '../errors.ts'

export interface JsonlLine {
  /** From 1; blank lines count. */
  readonly number: number
  /** Offset in the file, in bytes. */
  readonly at: number
  readonly bytes: Buffer
}

const CHUNK = 1 << 20
const NEW_LINE = 10
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf])

/** Maximum length of a line, and the file for error messages. */
export interface LineLimit {
  readonly path: string
  readonly maxBytes: number
}

/** Yields every non-blank line, without a byte order mark. `hash` gets the whole file. */
export async function* jsonlLines(
  handle: FileHandle,
  limit: LineLimit,
  hash?: Hash,
): AsyncGenerator<JsonlLine, void, undefined> {
  let pieces: Buffer[] = [] // of an unfinished line
  let [at, end, number] = [0, 0, 1]
  const check = (bytes: number): void => {
    if (bytes > limit.maxBytes) throw tooLong(limit, number)
  }
  const line = (last: Buffer): JsonlLine | undefined => {
    const all = pieces.length === 0 ? last : Buffer.concat([...pieces, last])
    check(all.length)
    pieces = []
    const skip = number === 1 && all.subarray(0, 3).equals(BYTE_ORDER_MARK) ? 3 : 0
    const found = { number, at: at + skip, bytes: all.subarray(skip) }
    at += all.length + 1
    number++
    return isBlank(found.bytes) ? undefined : found
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
    // Check before reading more: a file without a newline would fill the memory.
    check(end - at)
  }
  const last = pieces.length === 0 ? undefined : line(Buffer.alloc(0))
  if (last !== undefined) yield last
}

function tooLong({ path, maxBytes }: LineLimit, number: number): EldrError {
  const todo = 'Write one JSON value per line, and shorten or remove this line.'
  return new EldrError('ELDR_FILE_WRONG_KIND', {
    file: path,
    found: `more than ${maxBytes} bytes in line ${number}`,
    expected: 'a shorter line',
    todo,
  })
}

/** Only spaces, tabs and carriage returns. */
function isBlank(bytes: Buffer): boolean {
  return bytes.every(byte => byte === 32 || byte === 9 || byte === 13)
}

/** Throws ELDR_FILE_UNREADABLE if the file cannot be opened. */
export async function openLines(path: string): Promise<FileHandle> {
  try {
    // Opening a pipe would wait for a writer in a thread that cannot be stopped.
    if (!(await stat(path)).isFile()) throw new Error('not a regular file')
    const handle = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0))
    if ((await handle.stat()).isFile()) return handle
    await handle.close()
    throw new Error('not a regular file')
  } catch (cause) {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: path, cause })
  }
}

export const sha256 = (): Hash => createHash('sha256')
