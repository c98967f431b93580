/** Keeps two processes from one journal: a file with the process that holds it. One whose process is gone is taken over. */
import { randomBytes } from 'node:crypto'
import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { EldrError } from '../errors.ts'

/** What file systems without hard links answer. */
const NO_LINKS = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'])

export const lockOf = (path: string): string => `${path}.lock`

/** Gives what gives it back. */
export function lock(path: string): () => void {
  const file = lockOf(path)
  for (let again = true; ; again = false) {
    try {
      create(file)
      // Whoever took the same stale lock over may have moved this one away.
      if (holderOf(file) === process.pid)
        return () => (holderOf(file) === process.pid ? rmSync(file, { force: true }) : undefined)
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'EEXIST')
        throw new EldrError('ELDR_FILE_UNWRITABLE', { file, found: (cause as Error).message, cause })
    }
    const holder = holderOf(file)
    if (!again || isHeld(holder)) throw held(path, holder)
    takeAway(file, path)
  }
}

/** With its content from the start: nobody sees an empty one, which would count as left behind. */
function create(file: string): void {
  const temporary = besides(file)
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

/** Moved and looked at before it goes: between two looks somebody else may have taken it over. */
function takeAway(file: string, path: string): void {
  const moved = besides(file)
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
  throw held(path, holder)
}

const besides = (file: string): string => `${file}.${process.pid}-${randomBytes(6).toString('hex')}`

const isHeld = (holder: number | undefined): boolean => holder !== undefined && isAlive(holder)

const held = (path: string, holder: number | undefined): EldrError =>
  new EldrError('ELDR_JOURNAL_MISMATCH', {
    file: path,
    found: `${holder === undefined ? 'another process' : `process ${holder}`} at work on it`,
    todo: `Wait for it, or stop it; if there is no such process, delete ${lockOf(path)}.`,
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
    // Somebody else's, and so alive.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
