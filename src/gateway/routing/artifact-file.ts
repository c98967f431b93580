/** A temporary file for an artifact that was received as bytes: artifacts are read in parts, from files. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Name for people of an artifact that has no path. */
export const SENT = 'the artifact that was sent'

export async function asFile<T>(artifact: Uint8Array, use: (path: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'eldr-'))
  try {
    const path = join(folder, 'artifact.safetensors')
    await writeFile(path, artifact, { mode: 0o600 })
    return await use(path)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
