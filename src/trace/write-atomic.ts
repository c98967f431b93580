/**
 * Writes a file so that readers of its path see either the old bytes or all of the new ones, even if the
 * process or the machine dies.
 *
 * The bytes go to a new file next to the target, are flushed to disk, and that file is renamed over the
 * target. After a failure the old file is unchanged and the new one is removed; a killed process leaves a
 * `.eldr-….tmp` file behind, which is never read.
 */
import { randomBytes } from 'node:crypto'
import { type FileHandle, lstat, open, realpath, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { EldrError } from '../errors.ts'

export type Chunks = Iterable<Uint8Array | string> | AsyncIterable<Uint8Array | string>

/** One write(2) moves less than 2 GiB. */
const WRITE_CHUNK = 64 << 20
/** Errors of file systems that cannot flush a folder to disk. */
const NO_FOLDER_SYNC = new Set(['EINVAL', 'ENOTSUP', 'EISDIR', 'EPERM', 'EACCES', 'EBADF'])

/**
 * Text is written as UTF-8. Errors thrown by `chunks` are passed on; a file system error becomes
 * ELDR_FILE_UNWRITABLE.
 */
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
    await rm(temporary, { force: true }).catch(() => undefined) // report the first failure
    throw error
  }
  await attempt(path, () => syncFolder(dirname(target)))
}

/**
 * Where the bytes go: the target of a link, and never in place of something that is not a regular file, such
 * as /dev/null.
 */
async function targetOf(path: string): Promise<string> {
  const there = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  if (there === undefined) return path
  const target = await realpath(path)
  if (!(await stat(target)).isFile()) throw new Error('something other than a regular file in its place')
  return target
}

async function writeAll(handle: FileHandle, chunk: Uint8Array | string): Promise<void> {
  const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk
  for (let at = 0; at < bytes.length;) {
    at += (await handle.write(bytes, at, Math.min(bytes.length - at, WRITE_CHUNK))).bytesWritten
  }
}

/** The rename is durable only when the folder is flushed. */
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
