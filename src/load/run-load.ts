/** A run: sends what a source asks at the moments that a loop says, and keeps what came of each request. */
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
  /** Of the whole run, requests that do not count included; Infinity where the other one is the limit. */
  readonly requests: number
  readonly durationMs: number
  /** Which requests count: by number, and by the time they are planned for. */
  readonly counts: (index: number, fromStartMs: number) => boolean
  readonly timeoutMs: number
  /** Whether texts are hashed, to hold them against those of another run. */
  readonly hashText?: boolean
  /** Before the number in each request's id. */
  readonly idPrefix: string
  readonly onProgress?: (now: LoadProgress) => void
  readonly stop?: AbortSignal
}

export interface LoadProgress {
  readonly seconds: number
  readonly sent: number
  readonly ended: number
  readonly failed: number
  /** Events with text since the run began. */
  readonly tokens: number
}

export interface LoadRun {
  readonly exchanges: readonly Exchange[]
  /** In microseconds, between events of requests that count and ended well. */
  readonly gapsUs: Histogram
  readonly isOpen: boolean
  readonly startMs: number
  readonly endMs: number
  /** How late the client's own event loop was. */
  readonly loopDelayMs: { readonly p99: number; readonly max: number }
  /** Of this process, over wall time: 1 is one core. */
  readonly cpuShare: number
}

const PROGRESS_MS = 200
/** Node measures the time between two ticks of a timer; this much of it is the timer's own. */
const RESOLUTION_MS = 5

export async function runLoad(plan: LoadPlan): Promise<LoadRun> {
  const { endpoint, source, loop, stop } = plan
  const exchanges: Exchange[] = []
  const gapsUs = createHistogram()
  const giveUps = new Set<() => void>()
  const prepared = new Map<number, string>()
  let [sent, failed, tokens] = [0, 0, 0]

  const onEvents = (events: number) => void (tokens += events)
  const makeBody = (index: number) => bodyOf(source.ask(index), plan.body)
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
      const giveUp = exchange(
        endpoint,
        { ...what, timeoutMs: plan.timeoutMs, hashText: plan.hashText === true, onEvents },
        result => {
          giveUps.delete(giveUp)
          keep(result)
          resolve()
        },
      )
      giveUps.add(giveUp)
    })
  }

  function keep(result: Exchange): void {
    if (result.failure !== undefined) failed++
    else if (result.counted) for (const gapMs of result.gapsMs) record(gapsUs, gapMs * 1000)
    exchanges.push({ ...result, gapsMs: [] }) // counted above; kept, they would be most of the memory
  }

  stop?.addEventListener('abort', () => giveUps.forEach(giveUp => giveUp()), { once: true })
  const limits = { requests: plan.requests, durationMs: plan.durationMs, ...(stop && { stop }) }
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
