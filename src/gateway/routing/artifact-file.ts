/** An artifact that came as bytes, in a file of its own while it is read: artifacts are read by parts, and proven before they are held. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Artifacts that were loaded while the gateway ran, for whoever must load them again. */
export interface KeptArtifacts {
  /** Files that were sent stay here. */
  readonly folder: string
  loaded(path: string): void
}

export async function asFile<T>(artifact: Uint8Array, use: (path: string) => Promise<T>, kept?: KeptArtifacts): Promise<T> {
  const folder = await mkdtemp(join(kept?.folder ?? tmpdir(), 'eldr-'))
  let keep = false
  try {
    const path = join(folder, 'artifact.safetensors')
    await writeFile(path, artifact, { mode: 0o600 })
    const result = await use(path)
    keep = kept !== undefined
    kept?.loaded(path)
    return result
  } finally {
    if (!keep) await rm(folder, { recursive: true, force: true })
  }
}
