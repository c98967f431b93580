/** Runs a load: sends the requests of a source at the times of a loop and collects their results. */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { createHistogram, type Histogram, record } from '../sim/histogram.ts'
import type { Endpoint } from './endpoint.ts'
import { type Exchange, exchange } from './exchange.ts'
import { type ClosedLoop, type OpenLoop, pace } from './pacing.ts'
import { type BodySettings, bodyOf, type RequestSource } from './request-source.ts'

export interface LoadPlan {
  readonly endpoint: Endpoint
  readonly source: RequestSource
  readonly body: BodySettings
  readonly loop: OpenLoop | ClosedLoop
  /** Limits of the whole run, including requests that do not count; Infinity: no limit. */
  readonly requests: number
  readonly durationMs: number
  /** Tells whether a request counts, from its index and planned time. */
  readonly counts: (index: number, fromStartMs: number) => boolean
  readonly timeoutMs: number
  /** Hash texts, to compare them with those of another run. */
  readonly hashText?: boolean
  /** Prefix of request ids; the index follows. */
  readonly idPrefix: string
  readonly onProgress?: (now: LoadProgress) => void
  readonly stop?: AbortSignal
}

export interface LoadProgress {
  readonly seconds: number
  readonly sent: number
  readonly ended: number
  readonly failed: number
  /** Events with text since the start of the run. */
  readonly tokens: number
}

export interface LoadRun {
  readonly exchanges: readonly Exchange[]
  /** Microseconds between events of successful counted requests. */
  readonly gapsUs: Histogram
  readonly isOpen: boolean
  readonly startMs: number
  readonly endMs: number
  /** Delay of the client's event loop. */
  readonly loopDelayMs: { readonly p99: number; readonly max: number }
  /** CPU time of this process over wall time: 1 is one core. */
  readonly cpuShare: number
}

const PROGRESS_MS = 200
/** Node measures the time between two ticks of a timer; this is the timer's interval, to be subtracted. */
const RESOLUTION_MS = 5

export async function runLoad(plan: LoadPlan): Promise<LoadRun> {
  const { endpoint, source, loop, stop } = plan
  const exchanges: Exchange[] = []
  const gapsUs = createHistogram()
  const aborts = new Set<() => void>()
  const prepared = new Map<number, string>()
  let [sent, failed, tokens] = [0, 0, 0]

  const onEvents = (events: number) => void (tokens += events)
  const makeBody = (index: number) => bodyOf(source.request(index), plan.body)
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
  delay.enable()
  const cpu = process.cpuUsage()
  const startMs = performance.now()
  const progress = () =>
    plan.onProgress?.({
      seconds: (performance.now() - startMs) / 1000,
      sent,
      ended: exchanges.length,
      failed,
      tokens,
    })
  const timer = plan.onProgress && setInterval(progress, PROGRESS_MS)

  function send(index: number, plannedMs: number): Promise<void> {
    const body = prepared.get(index) ?? makeBody(index)
    prepared.delete(index)
    sent++
    return new Promise(resolve => {
      const what = {
        index,
        counted: plan.counts(index, plannedMs - startMs),
        plannedMs,
        body,
        id: `${plan.idPrefix}-${index}`,
      }
      const abort = exchange(
        endpoint,
        {
          ...what,
          timeoutMs: plan.timeoutMs,
          hashText: plan.hashText === true,
          keepText: source.ended !== undefined,
          onEvents,
        },
        result => {
          aborts.delete(abort)
          keep(result)
          resolve()
        },
      )
      aborts.add(abort)
    })
  }

  function keep(result: Exchange): void {
    if (result.failure !== undefined) failed++
    else if (result.counted) for (const gapMs of result.gapsMs) record(gapsUs, gapMs * 1000)
    source.ended?.(result.index, result.failure === undefined ? result.text : undefined)
    // Gaps are recorded above; keeping them and texts would need most of the memory.
    exchanges.push({ ...result, gapsMs: [], text: undefined })
  }

  stop?.addEventListener('abort', () => aborts.forEach(abort => abort()), { once: true })
  const limits = { requests: plan.requests, durationMs: plan.durationMs, stop }
  await pace(loop, limits, startMs, send, index => prepared.set(index, makeBody(index))).finally(() => {
    clearInterval(timer)
    delay.disable()
  })
  progress()
  const endMs = performance.now()
  const { user, system } = process.cpuUsage(cpu)
  const late = (ns: number) => Math.max(0, ns / 1e6 - RESOLUTION_MS)
  return {
    exchanges,
    gapsUs,
    isOpen: loop.kind === 'open',
    startMs,
    endMs,
    loopDelayMs: { p99: late(delay.percentile(99)), max: late(delay.max) },
    cpuShare: (user + system) / 1000 / (endMs - startMs),
  }
}
