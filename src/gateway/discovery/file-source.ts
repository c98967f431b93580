/**
 * Discovery by a file of workers. It watches the folder, since files are replaced by renames and by swapping
 * symbolic links (as Kubernetes does for ConfigMaps), and also polls, since not every file system sends
 * notifications. The file is parsed only if its text has changed.
 */
import { type FSWatcher, watch } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import type { FileDiscovery } from '../config/settings.ts'
import type { RankDefaults } from '../config/worker-form.ts'
import { pause } from './back-off.ts'
import {
  LookupFailure,
  type OnReport,
  type Problem,
  type ProblemReason,
  type Report,
  type Source,
} from './source.ts'
import { watchedNames } from './link-names.ts'
import { readOffThread, ReadAborted } from './worker-file-off-thread.ts'

/** The file is read when it has not changed for this long: it may still be being written. */
const SETTLE_MS = 50
/** Notifications within this time cause one read. */
const DEBOUNCE_MS = 100
/** Retry delay for a file whose parsing ran out of time or memory. */
const ABORTED_RETRY_MS = 60_000
/** Enough for the max number of workers with long names. */
const MAX_BYTES = 1 << 20

/** What reading the file gave. */
type FileText =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'problem'; readonly problem: Problem }

/** A file's text, valid or not, and the report for it. */
interface Reading {
  readonly text: string
  readonly report: Report
  /** When to parse the same text again. */
  readonly untilMs: number
}

export class FileSource implements Source {
  readonly #settings: FileDiscovery
  readonly #ranks: RankDefaults
  readonly #onReport: OnReport
  readonly #read: typeof readOffThread
  readonly #abortedRetryMs: number
  readonly #stop = new AbortController()
  #watcher: FSWatcher | undefined
  #wake: () => void = () => {}
  /** Names in the folder whose notifications matter. */
  #names: ReadonlySet<string> = new Set()
  #last: Reading | undefined

  constructor(
    settings: FileDiscovery,
    ranks: RankDefaults,
    onReport: OnReport,
    read = readOffThread,
    abortedRetryMs = ABORTED_RETRY_MS,
  ) {
    this.#settings = settings
    this.#ranks = ranks
    this.#onReport = onReport
    this.#read = read
    this.#abortedRetryMs = abortedRetryMs
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
      // Before reading, so that a change during it is not missed.
      const woken = new Promise<void>(resolve => (this.#wake = resolve))
      this.#watch()
      const startedMs = performance.now()
      // A link that is swapped after this is one of these names.
      this.#names = await watchedNames(this.#settings.path)
      await this.#look()
      const rest = new AbortController()
      await Promise.race([woken, pause(this.#settings.pollMs, AbortSignal.any([signal, rest.signal]))])
      rest.abort()
      await pause(startedMs + Math.min(DEBOUNCE_MS, this.#settings.pollMs) - performance.now(), signal)
    }
  }

  #watch(): void {
    if (this.#watcher !== undefined) return
    const folder = dirname(this.#settings.path)
    try {
      const watcher = watch(folder, { persistent: false }, (_, name) => {
        // The folder itself was moved or deleted; there may be a new one.
        if (name === basename(folder)) this.#unwatch()
        if (name === null || name === basename(folder) || this.#names.has(name)) this.#wake()
      })
      watcher.on('error', () => this.#unwatch())
      this.#watcher = watcher
    } catch {
      // No such folder yet, or no watches left: polling still works.
    }
  }

  #unwatch(): void {
    this.#watcher?.close()
    this.#watcher = undefined
  }

  async #look(): Promise<void> {
    const read = await this.#settled()
    const { signal } = this.#stop
    if (signal.aborted) return
    if (read.kind === 'problem') {
      // The folder may be gone too; a watch on it would not see a new one.
      if (read.problem.reason === 'unreadable') {
        this.#unwatch()
        this.#watch()
      }
      return this.#onReport({ problem: read.problem })
    }
    const { text } = read
    if (text !== this.#last?.text || performance.now() >= this.#last.untilMs) {
      const last = await this.#reading(text)
      if (signal.aborted) return
      this.#last = last
    }
    // Also if unchanged: workers that could not be registered before may be accepted now.
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
          : { reason: 'broken' as const, text: `${path} is not valid YAML or JSON` }
      return {
        text,
        report: { problem },
        untilMs: error instanceof ReadAborted ? performance.now() + this.#abortedRetryMs : Infinity,
      }
    }
  }

  /** Reads the file until two reads in a row give the same. */
  async #settled(): Promise<FileText> {
    let before = await readText(this.#settings.path)
    while (before.kind === 'problem' || before.text !== this.#last?.text) {
      await pause(SETTLE_MS, this.#stop.signal)
      const now = await readText(this.#settings.path)
      const same = isSame(now, before)
      before = now
      if (same || this.#stop.signal.aborted) break
    }
    return before
  }
}

function isSame(a: FileText, b: FileText): boolean {
  if (a.kind === 'text') return b.kind === 'text' && a.text === b.text
  return b.kind === 'problem' && a.problem.text === b.problem.text
}

async function readText(path: string): Promise<FileText> {
  const problem = (reason: ProblemReason, text: string): FileText => ({
    kind: 'problem',
    problem: { reason, text },
  })
  try {
    const info = await stat(path)
    if (!info.isFile()) return problem('unreadable', `${path} is not a regular file`)
    const bytes = info.size > MAX_BYTES ? undefined : await readFile(path)
    // It may have grown since `stat`.
    if (bytes === undefined || bytes.length > MAX_BYTES)
      return problem('broken', `${path} is larger than ${MAX_BYTES >> 20} MiB`)
    return { kind: 'text', text: bytes.toString('utf8') }
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? 'unknown reason'
    return problem('unreadable', `${path} cannot be read: ${code}`)
  }
}
