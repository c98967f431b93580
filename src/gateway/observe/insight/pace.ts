/** How fast streams went: by policy over the last quarter of an hour, and by worker over the last seconds. */
import { Tally, TIME_BINS } from './tally.ts'
import { TimeSlices } from './time-slices.ts'
import type { PacePoint } from './wire.ts'

export const SLICE_MS = 5_000
const SLICES = 180
/** What a worker does now. */
const RECENT_MS = 10_000
const RECENT_KEPT = 256

interface PolicyPace {
  readonly ttft: Tally
  readonly tpot: Tally
}

export class Pace {
  readonly #slices = new TimeSlices(SLICE_MS, SLICES, () => new Map<string, PolicyPace>())
  readonly #workers = new Map<string, { atMs: number; ms: number }[]>()

  /** The first byte of a stream that a policy placed. */
  firstByte(policy: string, ms: number, nowMs = Date.now()): void {
    this.#of(policy, nowMs).ttft.add(ms)
  }

  /** The end of a stream: mean time between its tokens. */
  stream(policy: string, ms: number, nowMs = Date.now()): void {
    this.#of(policy, nowMs).tpot.add(ms)
  }

  /** Time a token, or of a prefill leg. */
  onWorker(worker: string, ms: number, nowMs = Date.now()): void {
    let recent = this.#workers.get(worker)
    if (recent === undefined) this.#workers.set(worker, (recent = []))
    recent.push({ atMs: nowMs, ms })
    if (recent.length > RECENT_KEPT) recent.splice(0, RECENT_KEPT / 2)
  }

  /** Mean over the last seconds. */
  recent(worker: string, nowMs = Date.now()): { readonly recentMs?: number; readonly recentCount: number } {
    const within = (this.#workers.get(worker) ?? []).filter(({ atMs }) => atMs > nowMs - RECENT_MS)
    const sum = within.reduce((total, { ms }) => total + ms, 0)
    return { recentCount: within.length, ...(within.length > 0 && { recentMs: sum / within.length }) }
  }

  forget(worker: string): void {
    this.#workers.delete(worker)
  }

  /** Of the last `ms`, the oldest first. */
  points(nowMs = Date.now(), ms = Infinity): PacePoint[] {
    return this.#slices.since(nowMs, ms).flatMap(({ fromMs, slice }) =>
      [...slice].map(([policy, { ttft, tpot }]) => {
        const [first, token] = [ttft.spread(), tpot.spread()]
        return { fromMs, policy, ...(first && { ttft: first }), ...(token && { tpot: token }) }
      }),
    )
  }

  #of(policy: string, nowMs: number): PolicyPace {
    const slice = this.#slices.at(nowMs)
    let pace = slice.get(policy)
    if (pace === undefined)
      slice.set(policy, (pace = { ttft: new Tally(TIME_BINS), tpot: new Tally(TIME_BINS) }))
    return pace
  }
}
