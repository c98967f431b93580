/** Requests for a cluster to show itself with: rows of the trace, or the prompts it was captured of, coming at a rate, without end. Nothing of them is kept but counts. */
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
  /** Of real prompts; made up with the rows' lengths unless told. */
  readonly sourceOf?: SourceOfRows | undefined
  readonly model: string
  /** Requests a second of the clock. */
  readonly rate: number
  readonly seed: number
}

export interface BackgroundLoad {
  readonly counts: { readonly sent: number; readonly ended: number; readonly failed: number }
  /** The last failure, in words. */
  readonly failure: string | undefined
  stop(): Promise<void>
}

const TIMEOUT_MS = 60_000
const MOST_REQUESTS = 2 ** 40

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
  const giveUps = new Set<() => void>()
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
      const giveUp = exchange(endpoint, what, result => {
        giveUps.delete(giveUp)
        counts.ended++
        if (result.failure !== undefined && !stopping.signal.aborted) {
          counts.failed++
          failure = `${result.failure.kind}: ${result.failure.message}`
        }
        resolve()
      })
      giveUps.add(giveUp)
    })

  const limits = { requests: MOST_REQUESTS, durationMs: Number.MAX_VALUE, stop: stopping.signal }
  const ended = pace({ kind: 'open', nextMs: () => arrive() / 1000 }, limits, performance.now(), send)
  return {
    counts,
    get failure() {
      return failure
    },
    async stop() {
      stopping.abort()
      for (const giveUp of giveUps) giveUp()
      await ended
      await endpoint.close()
    },
  }
}

/** Rows that decode, in an order that the seed gives: neighbours in a file are often of one kind. */
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
