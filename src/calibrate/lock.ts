/** Keeps two processes from one journal: a file with the process that holds it. One whose process is gone is taken over. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { EldrError } from '../errors.ts'

export const lockOf = (path: string): string => `${path}.lock`

/** Gives what gives it back. */
export function lock(path: string): () => void {
  const file = lockOf(path)
  for (let again = true; ; again = false) {
    try {
      writeFileSync(file, String(process.pid), { flag: 'wx' })
      return () => rmSync(file, { force: true })
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'EEXIST')
        throw new EldrError('ELDR_FILE_UNWRITABLE', { file, found: (cause as Error).message, cause })
      const holder = holderOf(file)
      if (!again || (holder !== undefined && isAlive(holder)))
        throw new EldrError('ELDR_JOURNAL_MISMATCH', {
          file: path,
          found: `process ${holder} at work on it`,
          todo: `Wait for it, or stop it; if there is no such process, delete ${file}.`,
        })
      rmSync(file, { force: true })
    }
  }
}

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
