/**
 * The results of a running calibration, in a file next to its output: a line of JSON that identifies the
 * calibration, then one record per finished request. A process that dies may leave a partial record at the
 * end; it is dropped when the journal is opened again. Memory holds only the position of each record.
 */
import { type FileHandle, open, rm } from 'node:fs/promises'
import { EldrError } from '../errors.ts'
import { writeFileAtomic } from '../trace/write-atomic.ts'
import { type Captured, isSameShape, type ModelShape, shapeWords, type Skip } from './captured.ts'
import {
  type CapturedHead,
  encodeCaptured,
  encodeSkipped,
  FRAME_BYTES,
  MAX_PAYLOAD,
  type RecordHead,
  readHead,
  sectionsOf,
} from './journal-record.ts'

/** Options that must be the same for results to belong together. */
export type Identity = Readonly<Record<string, string | number | boolean | null>>

const FORMAT = 'eldr.journal.v1'
/** Far above the length of a valid first line. */
const MAX_FIRST_LINE = 1 << 16

export class Journal {
  readonly path: string
  readonly #handle: FileHandle
  readonly #heads = new Map<number, RecordHead>()
  /** Position of each payload. */
  readonly #places = new Map<number, number>()
  #end: number
  #shape: ModelShape | undefined
  #writing: Promise<void> = Promise.resolve()

  private constructor(path: string, handle: FileHandle, end: number) {
    this.path = path
    this.#handle = handle
    this.#end = end
  }

  /** Resumes an existing journal, or creates one. */
  static async open(path: string, identity: Identity): Promise<Journal> {
    const handle = await attempt(path, () =>
      open(path, 'r+').catch((error: NodeJS.ErrnoException) =>
        error.code === 'ENOENT' ? undefined : Promise.reject(error),
      ),
    )
    if (handle === undefined) return Journal.begin(path, identity)
    try {
      const journal = new Journal(
        path,
        handle,
        await attempt(path, () => checkFirstLine(path, handle, identity)),
      )
      await attempt(path, () => journal.#load())
      return journal
    } catch (error) {
      await handle.close()
      throw error
    }
  }

  /** Creates a journal and overwrites an existing one. */
  static async begin(path: string, identity: Identity): Promise<Journal> {
    const first = `${JSON.stringify({ format: FORMAT, ...identity })}\n`
    await writeFileAtomic(path, [first])
    return new Journal(path, await attempt(path, () => open(path, 'r+')), Buffer.byteLength(first))
  }

  /** Shape of all captured requests; undefined before the first. */
  get shape(): ModelShape | undefined {
    return this.#shape
  }

  get size(): number {
    return this.#heads.size
  }

  head(request: number): RecordHead | undefined {
    return this.#heads.get(request)
  }

  has(request: number): boolean {
    return this.#heads.has(request)
  }

  /** Throws ELDR_CAPTURE_CHANGED if the shape differs from that of earlier requests. */
  async add(request: number, result: Captured | Skip): Promise<void> {
    const isSkip = typeof result === 'string'
    if (!isSkip) this.#checkShape(result)
    const record = isSkip ? encodeSkipped(request, result) : encodeCaptured(request, result)
    const head = readHead(record.subarray(FRAME_BYTES), record.readUInt32LE(4))!
    // Writes run one after the other, each after the last complete record.
    const written = this.#writing.then(async () => {
      await attempt(this.path, () => writeAll(this.#handle, record, this.#end))
      this.#keep(head, this.#end + FRAME_BYTES)
      this.#end += record.length
    })
    this.#writing = written.catch(() => undefined)
    return written
  }

  async counts(request: number): Promise<Uint16Array> {
    const { countsAt, recentAt } = sectionsOf(this.#captured(request))
    return new Uint16Array(await this.#read(request, countsAt, recentAt))
  }

  /** In 256ths. */
  async recent(request: number): Promise<Uint16Array> {
    const { recentAt, idsAt } = sectionsOf(this.#captured(request))
    return new Uint16Array(await this.#read(request, recentAt, idsAt))
  }

  /** [steps][layers][topK], as bytes of `idBytes` each. */
  async ids(request: number): Promise<ArrayBuffer> {
    const { idsAt, end } = sectionsOf(this.#captured(request))
    return this.#read(request, idsAt, end)
  }

  /** Waits for pending writes and syncs them to disk. */
  async close(): Promise<void> {
    await this.#writing
    await this.#handle.sync().catch(() => undefined) // a full disk has been reported already
    await this.#handle.close()
  }

  async remove(): Promise<void> {
    await this.close()
    await attempt(this.path, () => rm(this.path, { force: true }))
  }

  async #load(): Promise<void> {
    const { size } = await this.#handle.stat()
    const frame = Buffer.alloc(FRAME_BYTES)
    while (this.#end + FRAME_BYTES <= size) {
      await readAll(this.#handle, frame, this.#end)
      const length = frame.readUInt32LE(0)
      if (length > MAX_PAYLOAD || this.#end + FRAME_BYTES + length > size) break
      const payload = Buffer.allocUnsafe(length)
      await readAll(this.#handle, payload, this.#end + FRAME_BYTES)
      const head = readHead(payload, frame.readUInt32LE(4))
      if (head === undefined) break
      if (head.skip === undefined) this.#checkShape(head)
      this.#keep(head, this.#end + FRAME_BYTES)
      this.#end += FRAME_BYTES + length
    }
    await this.#handle.truncate(this.#end)
  }

  #keep(head: RecordHead, at: number): void {
    this.#heads.set(head.request, head)
    this.#places.set(head.request, at)
  }

  #checkShape(shape: ModelShape): void {
    const { layers, experts, topK, halfLife } = shape
    this.#shape ??= { layers, experts, topK, halfLife }
    if (isSameShape(this.#shape, shape)) return
    throw new EldrError('ELDR_CAPTURE_CHANGED', {
      file: this.path,
      found: shapeWords(shape),
      expected: `${shapeWords(this.#shape)}, as in earlier requests`,
    })
  }

  #captured(request: number): CapturedHead {
    const head = this.#heads.get(request)
    if (head === undefined || head.skip !== undefined) throw new Error(`request ${request} has no counts`)
    return head
  }

  async #read(request: number, from: number, to: number): Promise<ArrayBuffer> {
    const bytes = new ArrayBuffer(to - from)
    await attempt(this.path, () =>
      readAll(this.#handle, new Uint8Array(bytes), this.#places.get(request)! + from),
    )
    return bytes
  }
}

/** Returns the position after the first line. */
async function checkFirstLine(path: string, handle: FileHandle, identity: Identity): Promise<number> {
  const start = Buffer.alloc(Math.min(MAX_FIRST_LINE, (await handle.stat()).size))
  await readAll(handle, start, 0)
  const end = start.indexOf(10)
  const wrong = (found: string, expected: string) =>
    new EldrError('ELDR_JOURNAL_MISMATCH', { file: path, found, expected })
  let stored: Record<string, unknown>
  try {
    stored = Object(JSON.parse(start.toString('utf8', 0, end))) as typeof stored
  } catch {
    throw wrong('a file that is not a journal', 'the journal of a calibration')
  }
  if (stored['format'] !== FORMAT) throw wrong(`format ${JSON.stringify(stored['format'])}`, FORMAT)
  const differing = Object.keys({ ...stored, ...identity }).find(
    key => key !== 'format' && stored[key] !== identity[key],
  )
  if (differing !== undefined)
    throw wrong(
      `${differing} ${shown(stored[differing])} in the journal`,
      `${shown(identity[differing])}, from this command`,
    )
  return end + 1
}

const shown = (value: unknown): string => JSON.stringify(value) ?? 'none'

async function writeAll(handle: FileHandle, bytes: Uint8Array, at: number): Promise<void> {
  for (let done = 0; done < bytes.length;)
    done += (await handle.write(bytes, done, bytes.length - done, at + done)).bytesWritten
}

async function readAll(handle: FileHandle, into: Uint8Array, at: number): Promise<void> {
  for (let done = 0; done < into.length;) {
    const { bytesRead } = await handle.read(into, done, into.length - done, at + done)
    if (bytesRead === 0) throw new Error('the file ends within a record')
    done += bytesRead
  }
}

async function attempt<T>(file: string, step: () => Promise<T>): Promise<T> {
  try {
    return await step()
  } catch (cause) {
    if (cause instanceof EldrError) throw cause
    throw new EldrError('ELDR_FILE_UNWRITABLE', {
      file,
      found: cause instanceof Error ? cause.message : String(cause),
      cause,
    })
  }
}
