/**
 * Endless built-in load of `eldr up`: rows of the trace, or the prompts from which it was captured, at a
 * fixed rate. Only counts are kept.
 */
import { createArrivals } from '../sim/arrivals.ts'
import { createRandom } from '../math/random.ts'
import type { SourceOfRows } from '../load/captured-prompts.ts'
import { openEndpoint } from '../load/endpoint.ts'
import { exchange } from '../load/exchange.ts'
import { type TraceRows, traceSource } from '../load/synthetic-sources.ts'
import { pace } from '../load/pacing.ts'
import { bodyOf } from '../load/request-source.ts'

export interface BackgroundSettings {
  readonly url: string
  readonly rows: TraceRows
  /** Source of real prompts. Default: synthetic ones with the lengths of the rows. */
  readonly sourceOf?: SourceOfRows | undefined
  readonly model: string
  /** Requests per second of wall time. */
  readonly rate: number
  readonly seed: number
}

export interface BackgroundLoad {
  readonly counts: { readonly sent: number; readonly ended: number; readonly failed: number }
  /** Message of the last failure. */
  readonly failure: string | undefined
  stop(): Promise<void>
}

const TIMEOUT_MS = 60_000
const MAX_REQUESTS = 2 ** 40

export function startBackgroundLoad({
  url,
  rows,
  sourceOf,
  model,
  rate,
  seed,
}: BackgroundSettings): BackgroundLoad {
  const endpoint = openEndpoint({ url, api: 'completions' })
  const random = createRandom(seed)
  const order = shuffled(rows.decodeSteps, random.fork(1))
  const source = sourceOf?.(order) ?? traceSource(rows, 'ids', seed, order)
  const arrive = createArrivals({ kind: 'poisson', perSecond: rate }, random.fork(2))
  const stopping = new AbortController()
  const aborts = new Set<() => void>()
  const counts = { sent: 0, ended: 0, failed: 0 }
  let failure: string | undefined

  const send = (index: number, plannedMs: number) =>
    new Promise<void>(resolve => {
      counts.sent++
      const body = bodyOf(source.request(index), { api: 'completions', model, ignoreEos: true })
      const what = {
        index,
        counted: false,
        plannedMs,
        body,
        id: `up-${index}`,
        timeoutMs: TIMEOUT_MS,
        onEvents: () => undefined,
      }
      const abort = exchange(endpoint, what, result => {
        aborts.delete(abort)
        counts.ended++
        if (result.failure !== undefined && !stopping.signal.aborted) {
          counts.failed++
          failure = `${result.failure.kind}: ${result.failure.message}`
        }
        resolve()
      })
      aborts.add(abort)
    })

  const limits = { requests: MAX_REQUESTS, durationMs: Number.MAX_VALUE, stop: stopping.signal }
  const ended = pace({ kind: 'open', nextMs: () => arrive() / 1000 }, limits, performance.now(), send)
  return {
    counts,
    get failure() {
      return failure
    },
    async stop() {
      stopping.abort()
      for (const abort of aborts) abort()
      await ended
      await endpoint.close()
    },
  }
}

/** Rows with decode steps in random order: neighbours in a file are often of one kind. */
function shuffled(decodeSteps: ArrayLike<number>, random: { below(n: number): number }): Int32Array {
  const rows = Int32Array.from(Array.from(decodeSteps, (_, row) => row).filter(row => decodeSteps[row]! > 0))
  for (let last = rows.length - 1; last > 0; last--) {
    const other = random.below(last + 1)
    const kept = rows[last]!
    rows[last] = rows[other]!
    rows[other] = kept
  }
  return rows
}
