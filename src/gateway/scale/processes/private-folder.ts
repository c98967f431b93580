/** A folder that only this user can enter, so that no other user can connect to the sockets in it. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EldrError } from '../../../errors.ts'
import { relayPath } from './supervisor-messages.ts'

/** Length of a Unix-domain socket path that every system accepts. */
const MAX_PATH_BYTES = 100

export function privateFolder(): string {
  let folder: string
  try {
    folder = mkdtempSync(join(tmpdir(), 'eldr-'))
  } catch (cause) {
    throw new EldrError('ELDR_FILE_UNWRITABLE', {
      file: tmpdir(),
      found: cause instanceof Error ? cause.message : String(cause),
      cause,
    })
  }
  if (Buffer.byteLength(relayPath(folder, 1_000)) <= MAX_PATH_BYTES) return folder
  rmSync(folder, { recursive: true, force: true })
  throw new EldrError('ELDR_USAGE', {
    found: `the temporary folder ${tmpdir()}`,
    expected: 'a path short enough for a socket',
    todo: 'Set TMPDIR to a shorter one, such as /tmp.',
  })
}

/** Created when it is first needed: a gateway of one process runs without a writable folder. */
export class LazyFolder {
  #path: string | undefined

  readonly path = (): string => (this.#path ??= privateFolder())

  readonly remove = (): void => {
    if (this.#path !== undefined) rmSync(this.#path, { recursive: true, force: true })
    this.#path = undefined
  }
}
