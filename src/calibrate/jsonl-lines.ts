/** Lines of a file of any length with their places, so that one can be read again without the others. Memory for one line at a time. */
import { createHash, type Hash } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
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
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf])

/** What a line may be at most, and the file for the message. */
export interface LongestLine {
  readonly path: string
  readonly mostBytes: number
}

/** Every line that is not blank, without a byte order mark. `hash` is fed with the whole file. */
export async function* jsonlLines(
  handle: FileHandle,
  longest: LongestLine,
  hash?: Hash,
): AsyncGenerator<JsonlLine, void, undefined> {
  let pieces: Buffer[] = [] // of a line that goes on
  let [at, end, number] = [0, 0, 1]
  const check = (bytes: number): void => {
    if (bytes > longest.mostBytes) throw tooLong(longest, number)
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
    // Before the rest of it is read: a file without a new line would fill the memory.
    check(end - at)
  }
  const last = pieces.length === 0 ? undefined : line(Buffer.alloc(0))
  if (last !== undefined) yield last
}

function tooLong({ path, mostBytes }: LongestLine, number: number): EldrError {
  const todo = 'Give one JSON value a line, and shorten or remove the line.'
  return new EldrError('ELDR_FILE_WRONG_KIND', {
    file: path,
    found: `line ${number} of more than ${mostBytes} bytes`,
    expected: 'less',
    todo,
  })
}

/** Space, tabulator, carriage return. */
function isBlank(bytes: Buffer): boolean {
  return bytes.every(byte => byte === 32 || byte === 9 || byte === 13)
}

/** A failure to open or to read is ELDR_FILE_UNREADABLE. */
export async function openLines(path: string): Promise<FileHandle> {
  try {
    // Nobody may ever write to a pipe, and opening it would wait for them in a thread that cannot be stopped.
    if (!(await stat(path)).isFile()) throw new Error('it is no regular file')
    const handle = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0))
    if ((await handle.stat()).isFile()) return handle
    await handle.close()
    throw new Error('it is no regular file')
  } catch (cause) {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: path, cause })
  }
}

export const sha256 = (): Hash => createHash('sha256')
