/**
 * The artifacts of swaps in one folder: each swap's own, with its lineage, and the one that it replaced. The
 * folder is created at the first swap; old files of it are removed, other files are left alone.
 */
import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Artifact, Lineage } from '../fit/artifact.ts'
import { writeArtifact } from '../fit/artifact-write.ts'
import { LINEAGE } from '../fit/artifact-write.ts'
import { withSafetensors } from '../trace/safetensors-file.ts'

const END = '.artifact.safetensors'
const SWAP = /^swap-[\dTZ]+-[\da-f]{8}\.artifact\.safetensors$/
const PARENT = /^parent-([\da-f]{8})\.artifact\.safetensors$/

export interface SavedSwap {
  readonly path: string
  readonly sha256: string
  readonly lineage: Lineage
}

export class SwapFiles {
  readonly #folder: string
  readonly #kept: number

  constructor(folder: string, kept: number) {
    this.#folder = folder
    this.#kept = kept
  }

  /** Path of the new file. `artifact` has a lineage. */
  async saveSwap(artifact: Artifact): Promise<string> {
    const { atMs, parentSha256 } = artifact.about.lineage!
    await mkdir(this.#folder, { recursive: true })
    const time = new Date(atMs).toISOString().replaceAll(/[-:]|\.\d+/g, '')
    const path = join(this.#folder, `swap-${time}-${parentSha256.slice(0, 8)}${END}`)
    await writeArtifact(path, artifact)
    return path
  }

  /**
   * Path of a copy of the artifact in force, for an undo: its own file may be gone by then. The copy has the
   * same bytes if the file still has the hash, otherwise it is written from memory.
   */
  async saveParent(artifact: Artifact, file: string, sha256: string): Promise<string> {
    await mkdir(this.#folder, { recursive: true })
    const path = this.parentPath(sha256)
    const bytes = await readFile(file).catch(() => undefined)
    if (bytes !== undefined && hashOf(bytes) === sha256) await writeFile(path, bytes)
    else await writeArtifact(path, artifact)
    return path
  }

  parentPath(sha256: string): string {
    return join(this.#folder, `parent-${sha256.slice(0, 8)}${END}`)
  }

  /** Swaps in the folder, newest first. Files that cannot be read are skipped. */
  async list(): Promise<SavedSwap[]> {
    const found = await Promise.all(
      (await this.#names()).filter(name => SWAP.test(name)).map(name => readSwap(join(this.#folder, name))),
    )
    return found.flatMap(swap => swap ?? []).sort((a, b) => b.lineage.atMs - a.lineage.atMs)
  }

  /** Removes the oldest swaps, and parents of none that is left. */
  async prune(): Promise<void> {
    const swaps = await this.list()
    const left = swaps.slice(0, this.#kept)
    for (const { path } of swaps.slice(this.#kept)) await rm(path, { force: true })
    const parents = new Set(left.map(({ lineage }) => lineage.parentSha256.slice(0, 8)))
    for (const name of await this.#names()) {
      const parent = PARENT.exec(name)?.[1]
      if (parent !== undefined && !parents.has(parent)) await rm(join(this.#folder, name), { force: true })
    }
  }

  async #names(): Promise<string[]> {
    return readdir(this.#folder).catch(() => [])
  }
}

const hashOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

async function readSwap(path: string): Promise<SavedSwap | undefined> {
  try {
    return await withSafetensors(path, async file => ({
      path,
      sha256: await file.sha256(),
      lineage: JSON.parse(file.metadata[LINEAGE]!) as Lineage,
    }))
  } catch {
    return undefined
  }
}
