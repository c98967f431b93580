/**
 * Runs policies and rates on a live cluster, to be compared with simulator runs with the same arrival times,
 * the same rows of the trace and the same counted requests. What differs then is what the simulator leaves
 * out.
 */
import { createRandom } from '../math/random.ts'
import { RequestPool } from '../sim/requests.ts'
import type { SimulationResult } from '../sim/result.ts'
import { measuredRequests } from '../sim/simulate.ts'
import { arrivalsAt, type StudyData } from '../sim/study.ts'
import { createWorkload } from '../sim/workload.ts'
import type { SourceOfRows } from './captured-prompts.ts'
import { type Api, openEndpoint } from './endpoint.ts'
import { type Figures, figuresOf, type Slo } from './figures.ts'
import type { Cluster } from './gateway-cluster.ts'
import { type TraceRows, traceSource } from './synthetic-sources.ts'
import type { PromptForm } from './synthetic-text.ts'
import { type LoadProgress, type LoadRun, runLoad } from './run-load.ts'

export interface SweepCell {
  readonly policy: string
  readonly rate: number
}

export interface SharedWorkload {
  /** [requests], increasing, since the start of the run. */
  readonly timesUs: Float64Array
  /**
   * [requests] rows in the simulator's numbering (only requests with decode steps) and in that of the trace.
   */
  readonly rowList: Int32Array
  readonly traceRows: Int32Array
}

/**
 * Draws requests from a seed as the simulator does. In the simulator's own runs a row in flight is passed
 * over, which depends on the policy; here each is released at once, so that the list is the same for all
 * policies and the live run.
 */
export function sharedWorkload(
  rows: TraceRows,
  arrivals: StudyData['arrivals'],
  rate: number,
  requests: number,
  seed: number,
): SharedWorkload {
  const requestOf = Int32Array.from(
    Array.from(rows.decodeSteps, (_, request) => request).filter(request => rows.decodeSteps[request]! > 0),
  )
  const replay = {
    rows: requestOf.length,
    steps: requestOf.map(request => rows.decodeSteps[request]!),
    promptTokens: requestOf.map(request => Math.max(1, rows.promptTokens[request]!)),
  }
  const workload = createWorkload({ arrivals: arrivalsAt(arrivals, rate) }, replay, 0, createRandom(seed))
  const pool = new RequestPool()
  const slot = pool.take()
  const timesUs = new Float64Array(requests)
  const rowList = new Int32Array(requests)
  for (let i = 0; i < requests; i++) {
    timesUs[i] = workload.nextArrivalUs()
    workload.assign(pool, slot)
    rowList[i] = pool.row[slot]!
    workload.release(rowList[i]!)
  }
  return { timesUs, rowList, traceRows: rowList.map(row => requestOf[row]!) }
}

export interface LiveSettings {
  readonly rows: TraceRows
  readonly api: Api
  readonly form: PromptForm
  /** Source of real prompts. Default: synthetic ones with the lengths of the rows. */
  readonly sourceOf?: SourceOfRows | undefined
  readonly model: string
  readonly apiKey?: string
  readonly insecure?: boolean
  readonly seed: number
  readonly timeoutMs: number
  readonly slo?: Slo
  readonly hashText?: boolean
  readonly onProgress?: (now: LoadProgress) => void
}

export interface LiveCell {
  readonly figures: Figures
  readonly exchanges: LoadRun['exchanges']
  /** True if all workers began with empty prefix caches; undefined if the cluster cannot tell. */
  readonly cachesCleared: boolean | undefined
}

/** Runs one cell. Requests before and after those that the simulator measures are sent but do not count. */
export async function runLive(
  cluster: Cluster,
  cell: SweepCell,
  shared: SharedWorkload,
  settings: LiveSettings,
): Promise<LiveCell> {
  const { rows, api, form, sourceOf, model, apiKey, insecure, seed, timeoutMs, slo, hashText, onProgress } =
    settings
  await cluster.setPolicy(cell.policy)
  const cachesCleared = await cluster.clearPrefixCaches?.()
  const endpoint = openEndpoint({ url: cluster.url, api, apiKey, insecure })
  const requests = shared.timesUs.length
  const { first, end } = measuredRequests(requests)
  let next = 0
  try {
    const run = await runLoad({
      endpoint,
      source: sourceOf?.(shared.traceRows) ?? traceSource(rows, form, seed, shared.traceRows),
      body: { api, model, ignoreEos: true },
      loop: { kind: 'open', nextMs: () => shared.timesUs[next++]! / 1000 },
      requests,
      durationMs: Infinity,
      counts: index => index >= first && index < end,
      timeoutMs,
      hashText,
      idPrefix: `sweep-${cell.policy}-${cell.rate}`,
      onProgress,
    })
    return { figures: figuresOf(run, slo), exchanges: run.exchanges, cachesCleared }
  } finally {
    await endpoint.close()
  }
}

export interface SweepRow extends SweepCell {
  readonly live: Figures
  readonly simulated: SimulationResult
  /** live / simulated. */
  readonly tpotP50Ratio: number
}

export function sweepRow(cell: SweepCell, live: Figures, simulated: SimulationResult): SweepRow {
  return { ...cell, live, simulated, tpotP50Ratio: live.tpotMs.p50 / simulated.tpotMs.p50 }
}
