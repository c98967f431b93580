/**
 * Keeps the EndpointSlices of one selector up to date: lists them once, then watches from the version of the
 * list. A watch that ends, breaks or is silent for too long is resumed from the last version it reported.
 * After 410 Gone or an unreadable event it starts again with a list.
 */
import { BackOff, pause } from './back-off.ts'
import { LookupFailure } from './source.ts'
import { JsonLines } from './json-lines.ts'
import { type KubeApi, KubeFailure, unreachable } from './kube-client.ts'
import { listAt, objectAt, readSlice, type Slice, textAt } from './slices.ts'

export interface SliceWatchOptions {
  readonly client: KubeApi
  /** Undefined: all namespaces. */
  readonly namespace?: string
  readonly labels: readonly string[]
  readonly retryMs: number
  readonly silentMs: number
  /** Called after the list, after each batch of events, and when a watch is re-established. */
  changed(slices: ReadonlyMap<string, Slice>, notes: readonly string[]): void
  failed(error: LookupFailure): void
}

const PAGE = 250
/**
 * Limits of one list, so that a faulty server cannot keep it going forever. They are far above the max number
 * of workers.
 */
const MAX_PAGES = 200
const MAX_SLICES = 10_000
const MAX_LIST_BYTES = 64 << 20
const MAX_EVENT_BYTES = 8 << 20
/** The server ends a watch after this time, so that connections are rebalanced between API servers. */
const WATCH_SECONDS = 300
/** A watch that ends sooner counts as a failure. */
const SHORT_WATCH_MS = 1_000
const MAX_NOTES = 20
const GONE = 410

export class SliceWatch {
  readonly #options: SliceWatchOptions
  readonly #stop = new AbortController()
  readonly #backOff: BackOff
  #slices = new Map<string, Slice>()
  #notes = new Set<string>()
  /** Where the next watch resumes; undefined before a list. */
  #version: string | undefined

  constructor(options: SliceWatchOptions) {
    this.#options = options
    this.#backOff = new BackOff(options.retryMs)
    void this.#follow()
  }

  stop(): void {
    this.#stop.abort()
  }

  async #follow(): Promise<void> {
    const { signal } = this.#stop
    while (!signal.aborted) {
      const startedMs = performance.now()
      try {
        if (this.#version === undefined) await this.#list()
        await this.#watch()
        if (performance.now() - startedMs >= SHORT_WATCH_MS) this.#backOff.reset()
        else await pause(this.#backOff.nextMs(), signal)
      } catch (error) {
        if (signal.aborted) return
        if (this.#mustReport(error))
          this.#options.failed(error instanceof LookupFailure ? error : unreachable(error))
        await pause(this.#backOff.nextMs(), signal)
      }
    }
  }

  /** An expired version is not a failure: the next list fixes it, and if that fails, it is reported. */
  #mustReport(error: unknown): boolean {
    const isGone = error instanceof KubeFailure && error.status === GONE
    if (isGone || (error instanceof LookupFailure && error.problem.reason === 'broken'))
      this.#version = undefined
    return !isGone
  }

  async #list(): Promise<void> {
    const slices = new Map<string, Slice>()
    this.#notes = new Set()
    let next: string | undefined
    let version: string | undefined
    let [pages, items, bytes] = [0, 0, 0]
    do {
      if (++pages > MAX_PAGES) throw tooMuch(`${MAX_PAGES} pages`)
      const body = await this.#page(next, MAX_LIST_BYTES - bytes)
      bytes += body.length
      const page = jsonIn(body)
      const metadata = objectAt(page, 'metadata')
      if (textAt(page, 'kind') !== 'EndpointSliceList')
        throw new LookupFailure('broken', 'the Kubernetes API returned no EndpointSliceList')
      items += listAt(page, 'items').length
      if (items > MAX_SLICES) throw tooMuch(`${MAX_SLICES} EndpointSlices`)
      for (const item of listAt(page, 'items')) {
        const slice = this.#read(item)
        if (slice !== undefined) slices.set(slice.key, slice)
      }
      next = textAt(metadata, 'continue')
      version = textAt(metadata, 'resourceVersion')
    } while (next !== undefined)
    if (version === undefined)
      throw new LookupFailure('broken', 'the Kubernetes API returned a list without a version')
    this.#slices = slices
    this.#version = version
    this.#notify()
  }

  async #page(next: string | undefined, maxBytes: number): Promise<Buffer> {
    const body = await this.#get(
      next === undefined ? { limit: String(PAGE) } : { limit: String(PAGE), continue: next },
    )
    const chunks: Buffer[] = []
    let bytes = 0
    try {
      for await (const chunk of body) {
        bytes += chunk.length
        if (bytes > maxBytes) throw tooMuch(`${MAX_LIST_BYTES >> 20} MiB`)
        chunks.push(chunk)
      }
    } catch (cause) {
      throw cause instanceof LookupFailure ? cause : unreachable(cause)
    }
    return Buffer.concat(chunks)
  }

  /** Returns when the watch ends, is cut off or times out. The next watch resumes there. */
  async #watch(): Promise<void> {
    const body = await this.#get({
      watch: '1',
      allowWatchBookmarks: 'true',
      resourceVersion: this.#version!,
      timeoutSeconds: String(WATCH_SECONDS),
    })
    this.#notify()
    const lines = new JsonLines(MAX_EVENT_BYTES)
    try {
      for await (const chunk of body) {
        let changed = false
        for (const event of lines.push(chunk)) changed = this.#take(event) || changed
        if (changed) this.#notify()
      }
    } catch (error) {
      if (error instanceof LookupFailure) throw error
    }
  }

  /** Returns true if there is something to report. */
  #take(event: unknown): boolean {
    const type = textAt(event, 'type')
    const object = objectAt(event, 'object')
    if (type === 'ERROR') {
      const code = Number(object['code'] ?? 500)
      if (code === GONE) throw new KubeFailure(GONE, '')
      throw new LookupFailure('broken', `the Kubernetes API ended the watch with an error (${code})`)
    }
    if (type === 'BOOKMARK') {
      this.#version = textAt(objectAt(object, 'metadata'), 'resourceVersion') ?? this.#version
      return false
    }
    if (type !== 'ADDED' && type !== 'MODIFIED' && type !== 'DELETED') {
      this.#note(`event of unknown type ${type?.slice(0, 100) ?? '(none)'} skipped`)
      return false
    }
    const slice = this.#read(object)
    if (slice === undefined) return true // to report the note
    this.#version = slice.version
    if (type === 'DELETED') this.#slices.delete(slice.key)
    else this.#slices.set(slice.key, slice)
    if (this.#slices.size > MAX_SLICES) throw tooMuch(`${MAX_SLICES} EndpointSlices`)
    return true
  }

  #read(value: unknown): Slice | undefined {
    const read = readSlice(value)
    if (read.kind === 'ok') return read.slice
    this.#note(read.why)
    return undefined
  }

  #note(text: string): void {
    if (this.#notes.size < MAX_NOTES) this.#notes.add(text)
  }

  #notify(): void {
    if (!this.#stop.signal.aborted) this.#options.changed(this.#slices, [...this.#notes])
  }

  #get(query: Readonly<Record<string, string>>) {
    const { client, namespace, labels, silentMs } = this.#options
    const where = namespace === undefined ? '' : `/namespaces/${encodeURIComponent(namespace)}`
    const search = new URLSearchParams({ labelSelector: labels.join(','), ...query })
    return client.get(
      `/apis/discovery.k8s.io/v1${where}/endpointslices?${search}`,
      silentMs,
      this.#stop.signal,
    )
  }
}

function jsonIn(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'))
  } catch (cause) {
    throw new LookupFailure('broken', 'the Kubernetes API returned a list that is not valid JSON', cause)
  }
}

function tooMuch(what: string): LookupFailure {
  return new LookupFailure(
    'broken',
    `the Kubernetes API has more than ${what} for one selector: choose a more specific selector`,
  )
}
