/**
 * The artifacts of swaps in one folder: each swap's own, with its lineage, the one that it replaced, and what
 * became of it. The folder is created at the first swap; old files of it are removed, others are left alone.
 */
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { access, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { EldrError } from '../errors.ts'
import type { Artifact, Lineage } from '../fit/artifact.ts'
import { isLineage } from '../fit/artifact-read.ts'
import { LINEAGE, writeArtifact } from '../fit/artifact-write.ts'
import { jsonOf } from '../trace/file-checks.ts'
import { withSafetensors } from '../trace/safetensors-file.ts'

const END = '.artifact.safetensors'
const OUTCOME_END = '.outcome.json'
const SWAP = /^swap-[\dTZ]+-[\da-f]{8}\.artifact\.safetensors$/
const PARENT = /^parent-([\da-f]{8})\.artifact\.safetensors$/

export interface SavedSwap {
  readonly path: string
  readonly sha256: string
  readonly lineage: Lineage
  readonly outcome?: Outcome
}

/** What became of a swap. */
export interface Outcome {
  readonly state: 'past' | 'undone' | 'rolled_back'
  /** No refit before this time, after it was undone or rolled back. */
  readonly heldUntilMs?: number
  readonly moved?: number
  readonly p99BeforeMs?: number
  readonly p99AfterMs?: number
}

export interface Listed {
  /** Newest first. */
  readonly swaps: readonly SavedSwap[]
  /** Files that are named as swaps and cannot be read, and why. */
  readonly skipped: readonly { readonly file: string; readonly problem: string }[]
}

export class SwapFiles {
  readonly #folder: string
  readonly #kept: number

  constructor(folder: string, kept: number) {
    this.#folder = folder
    this.#kept = kept
  }

  /**
   * Throws if the folder can be neither written nor created. Creates nothing: most gateways never swap.
   */
  async checkWritable(): Promise<void> {
    let existing = this.#folder
    while (!(await exists(existing)) && dirname(existing) !== existing) existing = dirname(existing)
    try {
      await access(existing, constants.W_OK | constants.X_OK)
      if (!(await stat(existing)).isDirectory()) throw new Error(`${existing} is not a folder`)
    } catch (error) {
      throw this.#unwritable(error)
    }
  }

  /** Path of the new file. `artifact` has a lineage. */
  async saveSwap(artifact: Artifact): Promise<string> {
    const { atMs, parentSha256 } = artifact.about.lineage!
    await this.#create()
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
    await this.#create()
    const path = this.parentPath(sha256)
    const bytes = await readFile(file).catch(() => undefined)
    if (bytes !== undefined && hashOf(bytes) === sha256) await writeFile(path, bytes)
    else await writeArtifact(path, artifact)
    return path
  }

  parentPath(sha256: string): string {
    return join(this.#folder, `parent-${sha256.slice(0, 8)}${END}`)
  }

  /** Path of the artifact that a swap replaced, if it is in the folder. */
  async findParent(sha256: string): Promise<string | undefined> {
    const path = this.parentPath(sha256)
    return (await exists(path)) ? path : undefined
  }

  /** Bytes of an artifact that a swap replaced, from another gateway. */
  async saveParentBytes(bytes: Uint8Array, sha256: string): Promise<string> {
    await this.#create()
    const path = this.parentPath(sha256)
    await writeFile(path, bytes)
    return path
  }

  /** Keeps what became of a swap beside its file. Does nothing for a file that is not in the folder. */
  async saveOutcome(path: string, outcome: Outcome): Promise<void> {
    const own = join(this.#folder, basename(path))
    if (SWAP.test(basename(path)) && (await exists(own)))
      await writeFile(outcomePath(own), JSON.stringify(outcome))
  }

  /** Removes a swap that was not put in force, and its parent if no other swap has it. */
  async discard(path: string): Promise<void> {
    await this.#remove(path)
    await this.prune()
  }

  /** Swaps in the folder. Other files are ignored. */
  async list(): Promise<Listed> {
    const names = (await this.#names()).filter(name => SWAP.test(name))
    const found = await Promise.all(names.map(name => readSwap(join(this.#folder, name))))
    return {
      swaps: found
        .flatMap(each => ('lineage' in each ? each : []))
        .sort((a, b) => b.lineage.atMs - a.lineage.atMs),
      skipped: found.flatMap(each => ('problem' in each ? each : [])),
    }
  }

  /** Removes the oldest swaps, and parents of none that is left. */
  async prune(): Promise<void> {
    const { swaps } = await this.list()
    const left = swaps.slice(0, this.#kept)
    for (const { path } of swaps.slice(this.#kept)) await this.#remove(path)
    const parents = new Set(left.map(({ lineage }) => lineage.parentSha256.slice(0, 8)))
    for (const name of await this.#names()) {
      const parent = PARENT.exec(name)?.[1]
      if (parent !== undefined && !parents.has(parent)) await rm(join(this.#folder, name), { force: true })
    }
  }

  async #remove(path: string): Promise<void> {
    await rm(path, { force: true })
    await rm(outcomePath(path), { force: true })
  }

  async #create(): Promise<void> {
    await mkdir(this.#folder, { recursive: true }).catch((error: unknown) => {
      throw this.#unwritable(error)
    })
  }

  #unwritable(error: unknown): EldrError {
    const found = (error as NodeJS.ErrnoException).code ?? (error as Error).message
    return new EldrError('ELDR_ADAPT_FOLDER', { file: this.#folder, found, cause: error })
  }

  async #names(): Promise<string[]> {
    return readdir(this.#folder).catch(() => [])
  }
}

const hashOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

const outcomePath = (path: string) => path.replace(END, OUTCOME_END)

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  )

async function readSwap(path: string): Promise<SavedSwap | Listed['skipped'][number]> {
  try {
    return await withSafetensors(path, async file => ({
      path,
      sha256: await file.sha256(),
      lineage: jsonOf(path, file.metadata, LINEAGE, 'the lineage of a swap', isLineage),
      outcome: await readOutcome(outcomePath(path)),
    }))
  } catch (error) {
    return { file: path, problem: error instanceof Error ? error.message : String(error) }
  }
}

/** Undefined if there is none, or it is not one: then the swap counts as replaced. */
async function readOutcome(path: string): Promise<Outcome | undefined> {
  try {
    const { state, ...numbers } = JSON.parse(await readFile(path, 'utf8')) as Outcome
    const { heldUntilMs, moved, p99BeforeMs, p99AfterMs } = numbers
    const isOne =
      ['past', 'undone', 'rolled_back'].includes(state) &&
      [heldUntilMs, moved, p99BeforeMs, p99AfterMs].every(each => each === undefined || Number.isFinite(each))
    return isOne ? { state, heldUntilMs, moved, p99BeforeMs, p99AfterMs } : undefined
  } catch {
    return undefined
  }
}
