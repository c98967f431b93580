/**
 * Keeps two processes from using one journal, with a file that holds the process id. The lock of a dead
 * process is taken over.
 */
import { randomBytes } from 'node:crypto'
import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { EldrError } from '../errors.ts'

/** Errors of file systems without hard links. */
const NO_LINKS = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'])

export const lockOf = (path: string): string => `${path}.lock`

/** Returns a release function. */
export function lock(path: string): () => void {
  const file = lockOf(path)
  for (let mayRetry = true; ; mayRetry = false) {
    try {
      create(file)
      // Another process that takes over the same stale lock may have moved this one.
      if (holderOf(file) === process.pid)
        return () => (holderOf(file) === process.pid ? rmSync(file, { force: true }) : undefined)
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'EEXIST')
        throw new EldrError('ELDR_FILE_UNWRITABLE', { file, found: (cause as Error).message, cause })
    }
    const holder = holderOf(file)
    if (!mayRetry || isHeld(holder)) throw heldError(path, holder)
    removeStale(file, path)
  }
}

/** Creates the file with its content in one step: an empty lock would look stale. */
function create(file: string): void {
  const temporary = temporaryName(file)
  writeFileSync(temporary, String(process.pid), { flag: 'wx' })
  try {
    linkSync(temporary, file)
  } catch (error) {
    if (!NO_LINKS.has((error as NodeJS.ErrnoException).code ?? '')) throw error
    writeFileSync(file, String(process.pid), { flag: 'wx' })
  } finally {
    rmSync(temporary, { force: true })
  }
}

/**
 * Moves the lock and checks it again before deleting it: another process may have taken it over meanwhile.
 */
function removeStale(file: string, path: string): void {
  const moved = temporaryName(file)
  try {
    renameSync(file, moved)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return
    throw new EldrError('ELDR_FILE_UNWRITABLE', { file, found: (error as Error).message, cause: error })
  }
  const holder = holderOf(moved)
  if (!isHeld(holder)) return rmSync(moved, { force: true })
  try {
    renameSync(moved, file)
  } catch {
    rmSync(moved, { force: true })
  }
  throw heldError(path, holder)
}

const temporaryName = (file: string): string => `${file}.${process.pid}-${randomBytes(6).toString('hex')}`

const isHeld = (holder: number | undefined): boolean => holder !== undefined && isAlive(holder)

const heldError = (path: string, holder: number | undefined): EldrError =>
  new EldrError('ELDR_JOURNAL_MISMATCH', {
    file: path,
    found: `a lock held by ${holder === undefined ? 'another process' : `process ${holder}`}`,
    todo: `Wait for that process, or stop it; if it does not exist, delete ${lockOf(path)}.`,
  })

function holderOf(file: string): number | undefined {
  try {
    const pid = Number(readFileSync(file, 'utf8'))
    return Number.isInteger(pid) && pid > 0 ? pid : undefined
  } catch {
    return undefined
  }
}

function isAlive(pid: number): boolean {
  if (pid === process.pid) return false
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    // A process of another user: alive.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
