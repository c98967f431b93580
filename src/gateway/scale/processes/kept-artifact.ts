/**
 * A private copy of the artifact in force, for the next owner. The file that was loaded may be deleted or
 * replaced by then.
 */
import { copyFile, mkdtemp, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Log } from '../../observe/log/log.ts'
import type { SavedArtifact } from './saved-state.ts'

export class KeptArtifact {
  readonly #folder: () => string
  readonly #save: (artifact: SavedArtifact) => void
  readonly #log: Log
  #last: string | undefined

  /** `last`: the copy of the owner before. */
  constructor(
    folder: () => string,
    last: string | undefined,
    log: Log,
    save: (artifact: SavedArtifact) => void,
  ) {
    this.#folder = folder
    this.#last = last
    this.#log = log
    this.#save = save
  }

  /** Resolves when the copy is complete. */
  async loaded(path: string, shownAs: string): Promise<void> {
    const before = this.#last
    this.#last = await this.#copy(path)
    this.#save({ path: this.#last ?? path, shownAs })
    // Each copy has its own folder. The file that was loaded belongs to the operator and is not removed.
    if (before !== undefined && this.#isOurs(before))
      await rm(dirname(before), { recursive: true, force: true })
  }

  /** Copies the artifact of the gateway before, whose folder is about to be removed. */
  async adopt({ path, shownAs }: SavedArtifact): Promise<void> {
    if (!this.#isOurs(path)) await this.loaded(path, shownAs)
  }

  #isOurs(path: string): boolean {
    return dirname(dirname(path)) === this.#folder()
  }

  /** Undefined if it cannot be copied: the next owner then reads the original file, if it still exists. */
  async #copy(path: string): Promise<string | undefined> {
    let own: string | undefined
    try {
      own = await mkdtemp(join(this.#folder(), 'eldr-'))
      const copy = join(own, 'artifact.safetensors')
      await copyFile(path, copy)
      return copy
    } catch (error) {
      this.#log.warn(
        { err: error, artifact: path },
        'cannot copy the artifact: a restarted owner fails to start if the file is removed',
      )
      if (own !== undefined) await rm(own, { recursive: true, force: true })
      return undefined
    }
  }
}
