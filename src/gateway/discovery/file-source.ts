/**
 * Follows a file of workers. Its folder is watched, since files are replaced by renaming others over them and by swapping links (as
 * Kubernetes does with ConfigMaps), and the file is looked at now and then too, since not every file system tells of changes. What is in
 * it is read when it is not the text that was read before.
 */
import { type FSWatcher, watch } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import type { FileDiscovery } from '../config/settings.ts'
import type { RankDefaults } from '../config/worker-form.ts'
import { pause } from './back-off.ts'
import { LookupFailure, type Report, type Source, type OnReport } from './source.ts'
import { namesOnTheWay } from './link-names.ts'
import { readBeside, ReadGivenUp } from './worker-file-beside.ts'

/** A file that is being written looks as if it were whole: it is taken when it has stayed the same for so long. */
const SETTLE_MS = 50
/** What happens within this time is one look. */
const GATHER_MS = 100
/** A text that could not be read for want of time or memory is tried again after so long. */
const GIVEN_UP_MS = 60_000
/** Room for the most workers there may be, with long names. */
const MAX_BYTES = 1 << 20

/** A text, good or bad, and what is told of it. */
interface Reading {
  readonly text: string
  readonly report: Report
  /** It is not read again before this. */
  readonly untilMs: number
}

export class FileSource implements Source {
  readonly #settings: FileDiscovery
  readonly #ranks: RankDefaults
  readonly #onReport: OnReport
  readonly #read: typeof readBeside
  readonly #givenUpMs: number
  readonly #stop = new AbortController()
  #watcher: FSWatcher | undefined
  #wake: () => void = () => {}
  /** In the folder: what happens to others there is nothing to us. */
  #names: ReadonlySet<string> = new Set()
  #last: Reading | undefined

  constructor(
    settings: FileDiscovery,
    ranks: RankDefaults,
    onReport: OnReport,
    read = readBeside,
    givenUpMs = GIVEN_UP_MS,
  ) {
    this.#settings = settings
    this.#ranks = ranks
    this.#onReport = onReport
    this.#read = read
    this.#givenUpMs = givenUpMs
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
      // Before the look, so that a change during it is not missed.
      const woken = new Promise<void>(resolve => (this.#wake = resolve))
      this.#watch()
      const startedMs = performance.now()
      // A link that is swapped after this is one of these names, and wakes.
      this.#names = await namesOnTheWay(this.#settings.path)
      await this.#look()
      const rest = new AbortController()
      await Promise.race([woken, pause(this.#settings.pollMs, AbortSignal.any([signal, rest.signal]))])
      rest.abort()
      await pause(startedMs + Math.min(GATHER_MS, this.#settings.pollMs) - performance.now(), signal)
    }
  }

  #watch(): void {
    if (this.#watcher !== undefined) return
    const folder = dirname(this.#settings.path)
    try {
      const watcher = watch(folder, { persistent: false }, (_, name) => {
        // The folder itself was moved or deleted, and another may have its place.
        if (name === basename(folder)) this.#unwatch()
        if (name === null || name === basename(folder) || this.#names.has(name)) this.#wake()
      })
      watcher.on('error', () => this.#unwatch())
      this.#watcher = watcher
    } catch {
      // No folder yet, or no watches left: looking now and then finds it all the same.
    }
  }

  #unwatch(): void {
    this.#watcher?.close()
    this.#watcher = undefined
  }

  async #look(): Promise<void> {
    const text = await this.#settled()
    const { signal } = this.#stop
    if (signal.aborted) return
    if (text instanceof LookupFailure) {
      // Its folder may be gone too, and a watch of that would never hear of the next one.
      if (text.problem.reason === 'unreadable') {
        this.#unwatch()
        this.#watch()
      }
      return this.#onReport({ problem: text.problem })
    }
    if (text !== this.#last?.text || performance.now() >= this.#last.untilMs) {
      const last = await this.#reading(text)
      if (signal.aborted) return
      this.#last = last
    }
    // Though it is the same: workers that could not be registered before may have room now.
    this.#onReport(this.#last.report)
  }

  async #reading(text: string): Promise<Reading> {
    const { path } = this.#settings
    try {
      return {
        text,
        report: { found: await this.#read({ path, text, defaults: this.#ranks }, this.#stop.signal) },
        untilMs: Infinity,
      }
    } catch (error) {
      const problem =
        error instanceof LookupFailure
          ? error.problem
          : { reason: 'broken' as const, text: `${path} cannot be read as YAML or JSON` }
      return {
        text,
        report: { problem },
        untilMs: error instanceof ReadGivenUp ? performance.now() + this.#givenUpMs : Infinity,
      }
    }
  }

  /** As it is when two looks in a row see the same. */
  async #settled(): Promise<string | LookupFailure> {
    let before = await textOr(this.#settings.path)
    while (before !== this.#last?.text) {
      await pause(SETTLE_MS, this.#stop.signal)
      const now = await textOr(this.#settings.path)
      const same =
        typeof now === 'string' || typeof before === 'string'
          ? now === before
          : now.problem.text === before.problem.text
      before = now
      if (same || this.#stop.signal.aborted) break
    }
    return before
  }
}

async function textOr(path: string): Promise<string | LookupFailure> {
  try {
    const info = await stat(path)
    if (!info.isFile()) return new LookupFailure('unreadable', `${path} is not a regular file`)
    const text = info.size > MAX_BYTES ? undefined : await readFile(path)
    // It may have grown between the two.
    if (text === undefined || text.length > MAX_BYTES)
      return new LookupFailure('broken', `${path} is larger than ${MAX_BYTES >> 20} MiB`)
    return text.toString('utf8')
  } catch (cause) {
    return new LookupFailure(
      'unreadable',
      `${path} cannot be read: ${(cause as NodeJS.ErrnoException).code ?? 'unknown reason'}`,
      cause,
    )
  }
}
