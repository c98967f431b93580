/**
 * Writes a file so that whoever reads its path sees the old bytes or the new ones, whole, also when the process or the machine dies.
 *
 * The bytes go to a new file beside the target, are forced to disk, and that file is renamed over the target. After a failure the old
 * file is as it was and the new one is gone; a process that is killed leaves a `.eldr-….tmp` behind, which nothing reads.
 */
import { randomBytes } from 'node:crypto'
import { type FileHandle, lstat, open, realpath, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { EldrError } from '../errors.ts'

export type Chunks = Iterable<Uint8Array | string> | AsyncIterable<Uint8Array | string>

/** One write(2) moves less than 2 GiB. */
const WRITE_CHUNK = 64 << 20
/** What file systems that cannot force a folder to disk answer. */
const NO_FOLDER_SYNC = new Set(['EINVAL', 'ENOTSUP', 'EISDIR', 'EPERM', 'EACCES', 'EBADF'])

/** Text is written as UTF-8. What `chunks` throws comes out as it is; a failure of the file system is ELDR_FILE_UNWRITABLE. */
export async function writeFileAtomic(path: string, chunks: Chunks): Promise<void> {
  const target = await attempt(path, () => targetOf(path))
  const temporary = join(dirname(target), `.eldr-${randomBytes(8).toString('hex')}.tmp`)
  const handle = await attempt(path, () => open(temporary, 'wx'))
  try {
    try {
      for await (const chunk of chunks) await attempt(path, () => writeAll(handle, chunk))
      await attempt(path, () => handle.sync())
    } finally {
      await attempt(path, () => handle.close())
    }
    await attempt(path, () => rename(temporary, target))
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => undefined) // the first failure is the one to tell
    throw error
  }
  await attempt(path, () => syncFolder(dirname(target)))
}

/** Where the bytes shall lie: behind a link, and never in place of something that is no regular file, such as /dev/null. */
async function targetOf(path: string): Promise<string> {
  const there = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  if (there === undefined) return path
  const target = await realpath(path)
  if (!(await stat(target)).isFile()) throw new Error('something else than a regular file in its place')
  return target
}

async function writeAll(handle: FileHandle, chunk: Uint8Array | string): Promise<void> {
  const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk
  for (let at = 0; at < bytes.length;) {
    at += (await handle.write(bytes, at, Math.min(bytes.length - at, WRITE_CHUNK))).bytesWritten
  }
}

/** The rename itself is on disk only when the folder is. */
async function syncFolder(folder: string): Promise<void> {
  let handle: FileHandle | undefined
  try {
    handle = await open(folder, 'r')
    await handle.sync()
  } catch (error) {
    if (!NO_FOLDER_SYNC.has((error as NodeJS.ErrnoException).code ?? '')) throw error
  } finally {
    await handle?.close()
  }
}

async function attempt<T>(file: string, step: () => Promise<T>): Promise<T> {
  try {
    return await step()
  } catch (cause) {
    throw new EldrError('ELDR_FILE_UNWRITABLE', {
      file,
      found: cause instanceof Error ? cause.message : String(cause),
      cause,
    })
  }
}
