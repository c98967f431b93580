/**
 * The artifact in force as a file of the gateway's own. The one that it was read from may be gone when a next owner wants to read it, which
 * then could not begin, or it may be another by then.
 */
import { copyFile, mkdtemp, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Log } from '../../observe/log/log.ts'
import type { SavedArtifact } from './saved-state.ts'

export class KeptArtifact {
  readonly #folder: string
  readonly #save: (artifact: SavedArtifact) => void
  readonly #log: Log
  #last: string | undefined

  /** `last`: the file of an owner before. */
  constructor(folder: string, last: string | undefined, log: Log, save: (artifact: SavedArtifact) => void) {
    this.#folder = folder
    this.#last = last
    this.#log = log
    this.#save = save
  }

  /** Resolves when the next owner would have it. */
  async loaded(path: string, shownAs: string): Promise<void> {
    const before = this.#last
    this.#last = await this.#copy(path)
    this.#save({ path: this.#last ?? path, shownAs })
    // Each copy has a folder to itself; the file of who loaded it is not ours to remove.
    if (before !== undefined && this.#isOurs(before))
      await rm(dirname(before), { recursive: true, force: true })
  }

  #isOurs(path: string): boolean {
    return dirname(dirname(path)) === this.#folder
  }

  /** Undefined when it cannot be copied: the next owner then reads the file itself, if it is still there. */
  async #copy(path: string): Promise<string | undefined> {
    const own = await mkdtemp(join(this.#folder, 'eldr-'))
    const copy = join(own, 'artifact.safetensors')
    try {
      await copyFile(path, copy)
      return copy
    } catch (error) {
      this.#log.warn(
        { err: error, artifact: path },
        'the artifact cannot be copied: if its file goes, an owner that is started anew cannot begin',
      )
      await rm(own, { recursive: true, force: true })
      return undefined
    }
  }
}
