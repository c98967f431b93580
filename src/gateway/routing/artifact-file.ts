/** A temporary file for an artifact that was received as bytes: artifacts are read in parts, from files. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EldrError } from '../../errors.ts'

/** Name for people of an artifact that has no path. */
export const SENT = 'the artifact that was sent'

/** Throws ELDR_FILE_UNWRITABLE if the disk is full. */
export async function asFile<T>(artifact: Uint8Array, use: (path: string) => Promise<T>): Promise<T> {
  let folder: string | undefined
  try {
    let path: string
    try {
      folder = await mkdtemp(join(tmpdir(), 'eldr-'))
      path = join(folder, 'artifact.safetensors')
      await writeFile(path, artifact, { mode: 0o600 })
    } catch (cause) {
      const found = cause instanceof Error ? cause.message : String(cause)
      throw new EldrError('ELDR_FILE_UNWRITABLE', { file: tmpdir(), found, cause })
    }
    return await use(path)
  } finally {
    if (folder !== undefined) await rm(folder, { recursive: true, force: true })
  }
}
