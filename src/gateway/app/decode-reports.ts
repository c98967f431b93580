/**
 * Asks decode workers for the experts of the requests that they have decoded. Only embedded workers tell;
 * others are asked again much later. No request waits for it, and a failure costs nothing but the counts.
 */
import type { Registry } from '../../cluster/registry.ts'
import type { WorkerSpec } from '../../cluster/worker.ts'
import { type DecodedRequest, readDecoded } from '../../wire/decoded-requests.ts'
import type { Upstreams } from '../upstream/upstreams.ts'
import type { Shape } from '../routing/read-experts.ts'

export interface ReportParts {
  readonly registry: Registry
  readonly upstreams: Pick<Upstreams, 'ask'>
  /** Of the model; undefined while no counts are needed. */
  shape(): Shape | undefined
  headersFor(worker: WorkerSpec): Record<string, string>
  reported(request: DecodedRequest): void
}

const INTERVAL_MS = 2_000
/** Wait after a response that is no report. */
const SILENT_MS = 600_000
const TIMEOUT_MS = 2_000
const MAX_BYTES = 32 << 20

export class DecodeReports {
  readonly #parts: ReportParts
  readonly #timer: NodeJS.Timeout
  /** By worker id: number of the last report, and when to ask again. */
  readonly #known = new Map<string, { last: number; notBeforeMs: number }>()
  #asking = false

  constructor(parts: ReportParts) {
    this.#parts = parts
    parts.registry.subscribe(({ kind, worker }) => {
      if (kind === 'forgotten') this.#known.delete(worker.id)
    })
    this.#timer = setInterval(() => void this.ask(), INTERVAL_MS).unref()
  }

  /** Resolves when all workers have responded. */
  async ask(): Promise<void> {
    const shape = this.#parts.shape()
    if (this.#asking || shape === undefined) return
    this.#asking = true
    const nowMs = performance.now()
    const workers = this.#parts.registry
      .views(nowMs)
      .filter(({ spec, state }) => spec.role === 'decode' && state === 'ready')
      .filter(({ spec }) => (this.#known.get(spec.id)?.notBeforeMs ?? 0) <= nowMs)
    await Promise.all(workers.map(({ spec }) => this.#askOne(spec, shape)))
    this.#asking = false
  }

  close(): void {
    clearInterval(this.#timer)
  }

  async #askOne(worker: WorkerSpec, shape: Shape): Promise<void> {
    const { upstreams, headersFor, reported } = this.#parts
    const last = this.#known.get(worker.id)?.last ?? 0
    const read = await upstreams
      .ask(
        worker.url,
        { method: 'GET', path: `/eldr/decoded?after=${last}`, headers: headersFor(worker) },
        { timeoutMs: TIMEOUT_MS, maxBytes: MAX_BYTES },
      )
      .then(({ status, body }) => (status === 200 ? readDecoded(parsed(body), shape) : undefined))
      .catch(() => 'unreachable' as const)
    if (read === 'unreachable') return
    const notBeforeMs = read === undefined ? performance.now() + SILENT_MS : 0
    this.#known.set(worker.id, { last: read?.last ?? 0, notBeforeMs })
    // A worker that restarted counts from 0 again: its first few requests are missed.
    for (const request of read?.requests ?? []) reported(request)
  }
}

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'))
  } catch {
    return undefined
  }
}
