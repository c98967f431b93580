/**
 * Active experts of each decode worker. Embedded workers report them, vLLM's plugin reports counts per layer,
 * and the policy `union` has an estimate for any engine. Workers are queried on demand, and responses are
 * cached for a moment.
 */
import { ofEngine, readSamples, type Sample } from '../../../cluster/metrics-text.ts'
import type { WorkerSpec } from '../../../cluster/worker.ts'
import { UpstreamFailure } from '../../upstream/upstreams.ts'
import type { AdminContext, AdminParts } from '../admin/admin-context.ts'
import type { ExpertsView, WorkerExperts } from '../../observe/insight/wire.ts'

const TIMEOUT_MS = 1_000
const MAX_BYTES = 8 << 20
/** How long a response is cached. Metrics pages are large, so they are read less often. */
const FRESH_MS = 300
const METRICS_FRESH_MS = 5_000
/** How long to use /metrics before trying /eldr/union on a worker again. */
const RETRY_UNION_MS = 60_000
const NAMES: ReadonlySet<string> = new Set([
  'eldr_active_experts',
  'eldr_decode_batch',
  'vllm:num_requests_running',
])

type Report = Pick<WorkerExperts, 'answered' | 'batch' | 'active' | 'union'> & { readonly shape?: Shape }
type Shape = Pick<ExpertsView, 'layers' | 'experts' | 'topK'>

type ExpertsContext = Pick<AdminContext, 'settings' | 'registry' | 'router' | 'upstreams' | 'health'>

interface CachedReport {
  readonly atMs: number
  readonly report: Promise<Report>
}

export class WorkerExpertsReader {
  readonly #ctx: ExpertsContext
  readonly #withRank: AdminParts['withRank']
  readonly #reports = new Map<string, CachedReport>()
  /** By URL: the ranks of a server share one page. */
  readonly #pages = new Map<
    string,
    { readonly atMs: number; readonly samples: Promise<readonly Sample[] | undefined> }
  >()
  readonly #metricsUntilMs = new Map<string, number>()

  constructor(ctx: ExpertsContext, withRank: AdminParts['withRank']) {
    this.#ctx = ctx
    this.#withRank = withRank
  }

  async view(withExpected: boolean): Promise<ExpertsView> {
    const { registry, router } = this.#ctx
    const nowMs = performance.now()
    const decoders = registry.views(nowMs).filter(({ spec }) => spec.role === 'decode')
    for (const id of this.#reports.keys()) if (!decoders.some(({ spec }) => spec.id === id)) this.#forget(id)
    for (const url of this.#pages.keys())
      if (!decoders.some(({ spec }) => spec.url === url)) this.#pages.delete(url)
    const all = await Promise.all(decoders.map(({ spec }) => this.#report(spec, nowMs)))
    const { policy, shape = all.find(report => report.shape !== undefined)?.shape } = router.table
    const workers = decoders.map(({ spec, index }, at): WorkerExperts => {
      const { shape: own, union, ...report } = all[at]!
      const expected = withExpected ? policy.expectedExperts?.(index) : undefined
      // Skip bits of a different model shape.
      const fits = own !== undefined && own.layers === shape?.layers && own.experts === shape.experts
      return {
        id: spec.id,
        ...report,
        union: fits ? union : undefined,
        expected: expected && in255ths(expected),
      }
    })
    return { ...(shape ?? { layers: 0, experts: 0, topK: 0 }), workers }
  }

  #forget(id: string): void {
    this.#reports.delete(id)
    this.#metricsUntilMs.delete(id)
  }

  #report(worker: WorkerSpec, nowMs: number): Promise<Report> {
    const { id } = worker
    const byMetrics = (this.#metricsUntilMs.get(id) ?? 0) > nowMs
    const last = this.#reports.get(id)
    if (last !== undefined && nowMs - last.atMs < (byMetrics ? METRICS_FRESH_MS : FRESH_MS))
      return last.report
    const report = (byMetrics ? this.#metrics(worker) : this.#union(worker)).catch((error: unknown) => {
      if (!(error instanceof UpstreamFailure)) throw error
      // Report it now, before the next health check.
      if (error.kind === 'connect' || error.kind === 'reset') this.#ctx.health.passiveFailure(id)
      this.#reports.delete(id)
      this.#pages.delete(worker.url)
      return { answered: false }
    })
    this.#reports.set(id, { atMs: nowMs, report })
    return report
  }

  async #union(worker: WorkerSpec): Promise<Report> {
    const { status, body } = await this.#get(worker, '/eldr/union')
    const report = status === 200 ? unionIn(body) : undefined
    if (report !== undefined) return report
    this.#metricsUntilMs.set(worker.id, performance.now() + RETRY_UNION_MS)
    return this.#metrics(worker)
  }

  async #metrics(worker: WorkerSpec): Promise<Report> {
    const page = await this.#page(worker)
    if (page === undefined) return { answered: true }
    const samples = ofEngine(page, worker.dpRank)
    const active = meanByLayer(samples.filter(({ name }) => name === 'eldr_active_experts'))
    const batch =
      samples.find(({ name }) => name === 'eldr_decode_batch') ??
      samples.find(({ name }) => name.startsWith('vllm:'))
    return {
      answered: true,
      batch: batch?.value,
      active: active.length > 0 ? active : undefined,
    }
  }

  /** Undefined if the server has no metrics. */
  #page({ url }: WorkerSpec): Promise<readonly Sample[] | undefined> {
    const last = this.#pages.get(url)
    const nowMs = performance.now()
    if (last !== undefined && nowMs - last.atMs < FRESH_MS) return last.samples
    const samples = this.#get({ url }, '/metrics').then(({ status, body }) =>
      status === 200
        ? readSamples(body.toString('utf8'), NAMES).filter(({ value }) => Number.isFinite(value))
        : undefined,
    )
    this.#pages.set(url, { atMs: nowMs, samples })
    return samples
  }

  #get(worker: Pick<WorkerSpec, 'url' | 'dpRank'>, path: string) {
    const { settings, upstreams } = this.#ctx
    const { apiKey } = settings.workers
    const headers: Record<string, string> = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }
    return upstreams.ask(
      worker.url,
      { method: 'GET', path, headers: this.#withRank(headers, worker) },
      { timeoutMs: TIMEOUT_MS, maxBytes: MAX_BYTES },
    )
  }
}

/** Parses the response of `GET /eldr/union`; undefined if it is invalid. */
function unionIn(body: Buffer): Report | undefined {
  let report: Record<string, unknown>
  try {
    report = JSON.parse(body.toString('utf8')) as Record<string, unknown>
  } catch {
    return undefined
  }
  const { layers, experts, top_k: topK, batch, active, union } = report ?? {}
  if (!isCount(layers) || !isCount(experts) || !isCount(topK) || !isCount(batch) || typeof union !== 'string')
    return undefined
  const cells = Buffer.from(union, 'base64')
  if (
    cells.length !== layers * experts ||
    !Array.isArray(active) ||
    active.length !== layers ||
    !active.every(isCount)
  )
    return undefined
  return {
    answered: true,
    batch,
    active: active as number[],
    union: bits(cells),
    shape: { layers, experts, topK },
  }
}

/** Mean over the ranks of a server, per layer. */
function meanByLayer(samples: readonly Sample[]): number[] {
  const byLayer = new Map<number, number[]>()
  for (const { labels, value } of samples) {
    const layer = Number(labels['layer'] ?? 0)
    byLayer.set(layer, [...(byLayer.get(layer) ?? []), value])
  }
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
  return [...byLayer].sort(([a], [b]) => a - b).map(([, values]) => mean(values))
}

function isCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 65_536
}

/** Packs bytes to bits, since there may be many workers and viewers. */
function bits(cells: Uint8Array): string {
  const packed = Buffer.alloc(Math.ceil(cells.length / 8))
  for (let cell = 0; cell < cells.length; cell++) if (cells[cell] !== 0) packed[cell >> 3]! |= 1 << (cell & 7)
  return packed.toString('base64')
}

function in255ths(chances: Float32Array): string {
  return Buffer.from(Uint8Array.from(chances, chance => Math.round(255 * chance))).toString('base64')
}
