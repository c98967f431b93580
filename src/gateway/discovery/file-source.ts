/**
 * Follows a file of workers. Its folder is watched, since files are replaced by renaming others over them and by swapping links (as
 * Kubernetes does with ConfigMaps), and the file is read now and then too, since not every file system tells of changes.
 */
import { type FSWatcher, watch } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { FileDiscovery } from '../config/settings.ts'
import type { RankDefaults } from '../config/worker-form.ts'
import { pause } from './back-off.ts'
import { LookFailure, type Source, type Tell } from './found.ts'
import { readWorkerFile } from './worker-file.ts'

/** A file that is being written looks as if it were whole: it is taken when it has stayed the same for so long. */
const SETTLE_MS = 50
const MOST_BYTES = 16 << 20

export class FileSource implements Source {
  readonly #settings: FileDiscovery
  readonly #ranks: RankDefaults
  readonly #tell: Tell
  readonly #stop = new AbortController()
  #watcher: FSWatcher | undefined
  #wake: () => void = () => {}
  #taken: string | undefined

  constructor(settings: FileDiscovery, ranks: RankDefaults, tell: Tell) {
    this.#settings = settings
    this.#ranks = ranks
    this.#tell = tell
    void this.#follow()
  }

  stop(): void {
    this.#stop.abort()
    this.#watcher?.close()
    this.#wake()
  }

  async #follow(): Promise<void> {
    const { signal } = this.#stop
    while (!signal.aborted) {
      this.#watch()
      // Before the look, so that a change during it is not missed.
      const woken = new Promise<void>(resolve => (this.#wake = resolve))
      await this.#look()
      const rest = new AbortController()
      await Promise.race([woken, pause(this.#settings.pollMs, AbortSignal.any([signal, rest.signal]))])
      rest.abort()
    }
  }

  #watch(): void {
    if (this.#watcher !== undefined) return
    try {
      const watcher = watch(dirname(this.#settings.path), { persistent: false }, () => this.#wake())
      watcher.on('error', () => {
        watcher.close()
        this.#watcher = undefined
      })
      this.#watcher = watcher
    } catch {
      // No folder yet, or no watches left: reading now and then finds it all the same.
    }
  }

  async #look(): Promise<void> {
    const { path } = this.#settings
    try {
      const text = await this.#settled()
      if (this.#stop.signal.aborted) return
      const found = readWorkerFile(path, text, this.#ranks)
      this.#taken = text
      this.#tell({ found })
    } catch (error) {
      if (this.#stop.signal.aborted) return
      this.#taken = undefined
      // Its folder may be gone too, and a watch of that would never hear of the next one.
      this.#watcher?.close()
      this.#watcher = undefined
      const bad = error instanceof LookFailure ? error.bad : { reason: 'broken' as const, text: `${path} cannot be read as YAML or JSON` }
      this.#tell({ bad })
    }
  }

  /** As it is when two looks in a row see the same. */
  async #settled(): Promise<string> {
    let before = await textOr(this.#settings.path)
    while (before !== this.#taken) {
      await pause(SETTLE_MS, this.#stop.signal)
      const now = await textOr(this.#settings.path)
      const same = typeof now === 'string' || typeof before === 'string' ? now === before : now.bad.text === before.bad.text
      before = now
      if (same || this.#stop.signal.aborted) break
    }
    if (typeof before === 'string') return before
    throw before
  }
}

async function textOr(path: string): Promise<string | LookFailure> {
  try {
    const info = await stat(path)
    if (!info.isFile()) return new LookFailure('unreadable', `${path} is not a regular file`)
    if (info.size > MOST_BYTES) return new LookFailure('broken', `${path} is larger than ${MOST_BYTES >> 20} MiB`)
    return await readFile(path, 'utf8')
  } catch (cause) {
    return new LookFailure('unreadable', `${path} cannot be read: ${(cause as NodeJS.ErrnoException).code ?? 'unknown reason'}`, cause)
  }
}
