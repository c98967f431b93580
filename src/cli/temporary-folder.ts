import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EldrError } from '../errors.ts'

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/**
 * Removes the folder when the work ends, fails or is stopped by a signal; the process then ends by that
 * signal.
 */
export async function withTemporaryFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = createFolder()
  const remove = () => rmSync(folder, { recursive: true, force: true })
  const stopped = (signal: NodeJS.Signals) => {
    remove()
    for (const name of SIGNALS) process.removeListener(name, stopped)
    process.kill(process.pid, signal)
  }
  for (const name of SIGNALS) process.on(name, stopped)
  try {
    return await work(folder)
  } finally {
    for (const name of SIGNALS) process.removeListener(name, stopped)
    remove()
  }
}

function createFolder(): string {
  try {
    return mkdtempSync(join(tmpdir(), 'eldr-'))
  } catch (cause) {
    throw new EldrError('ELDR_FILE_UNWRITABLE', {
      file: tmpdir(),
      found: cause instanceof Error ? cause.message : String(cause),
      cause,
    })
  }
}
