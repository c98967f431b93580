/** Latencies by policy over the last 15 minutes and by worker over the last 10 seconds. */
import { Histogram, TIME_BINS } from './histogram.ts'
import { TimeSlices } from './time-slices.ts'
import type { PacePoint } from './wire.ts'

export const SLICE_MS = 5_000
const SLICES = 180
const RECENT_MS = 10_000
const RECENT_KEPT = 256

interface PolicyPace {
  readonly ttft: Histogram
  readonly tpot: Histogram
}

export class Pace {
  readonly #slices = new TimeSlices(SLICE_MS, SLICES, () => new Map<string, PolicyPace>())
  readonly #workers = new Map<string, { atMs: number; ms: number }[]>()
  /** Told of every stream that ended. */
  streamed: (ms: number) => void = () => {}

  /** Time to the first byte of a stream that `policy` placed. */
  firstByte(policy: string, ms: number, nowMs = Date.now()): void {
    this.#current(policy, nowMs).ttft.add(ms)
  }

  /** Mean time between the tokens of a stream that ended. */
  stream(policy: string, ms: number, nowMs = Date.now()): void {
    this.#current(policy, nowMs).tpot.add(ms)
    this.streamed(ms)
  }

  /** Mean time between tokens on a decode worker, or duration of a prefill leg. */
  onWorker(worker: string, ms: number, nowMs = Date.now()): void {
    let recent = this.#workers.get(worker)
    if (recent === undefined) this.#workers.set(worker, (recent = []))
    recent.push({ atMs: nowMs, ms })
    if (recent.length > RECENT_KEPT) recent.splice(0, RECENT_KEPT / 2)
  }

  /** Mean over the last RECENT_MS. */
  recent(worker: string, nowMs = Date.now()): { readonly recentMs?: number; readonly recentCount: number } {
    const within = (this.#workers.get(worker) ?? []).filter(({ atMs }) => atMs > nowMs - RECENT_MS)
    const sum = within.reduce((total, { ms }) => total + ms, 0)
    return { recentCount: within.length, recentMs: within.length > 0 ? sum / within.length : undefined }
  }

  forget(worker: string): void {
    this.#workers.delete(worker)
  }

  /** Points of the last `ms`, oldest first. */
  points(nowMs = Date.now(), ms = Infinity): PacePoint[] {
    return this.#slices.since(nowMs, ms).flatMap(({ fromMs, slice }) =>
      [...slice].map(([policy, { ttft, tpot }]) => ({
        fromMs,
        policy,
        ttft: ttft.spread(),
        tpot: tpot.spread(),
      })),
    )
  }

  #current(policy: string, nowMs: number): PolicyPace {
    const slice = this.#slices.at(nowMs)
    let pace = slice.get(policy)
    if (pace === undefined)
      slice.set(policy, (pace = { ttft: new Histogram(TIME_BINS), tpot: new Histogram(TIME_BINS) }))
    return pace
  }
}
