/**
 * What watchers are told, twice a second, however many decisions there are: all of them are counted, and some of them, each with the same
 * chance, are shown. It is put together once for all watchers, and not at all for nobody.
 */
import type { RoutableRequest } from '../../../policy/decode-policy.ts'
import type { DecisionRecord } from '../../observe/decision-log.ts'
import type { Follower } from '../../observe/events.ts'
import { EventLog } from './event-log.ts'
import type {
  FitHealth,
  Hello,
  LiveDecision,
  LiveRouting,
  LiveWorker,
  PacePoint,
  Pulse,
} from '../../observe/insight/wire.ts'

export const PULSE_MS = 500
/** Shown of those between two pulses: more nobody can read. */
export const SAMPLE = 10
/** Slices of time that may still change. */
const FILLING_MS = 10_000
/** What has changed is told sooner, with what changes right after it. */
const SOON_MS = 30
const MAX_WATCHERS = 32

export interface FeedSources {
  routing(): LiveRouting
  workers(): LiveWorker[]
  load(): { readonly running: number; readonly queued: number }
  health(): FitHealth
  pace(nowMs: number, ms?: number): PacePoint[]
  readonly sliceMs: number
  /** The last decisions, for one who comes. */
  decisions(limit: number): readonly DecisionRecord[]
  /** Where a signature lies in the plane, where there is one. */
  place(routable: RoutableRequest): readonly [number, number] | undefined
  /** Hears which decisions are shown. */
  shown(record: DecisionRecord): void
}

interface Sampled {
  readonly record: DecisionRecord
  readonly routable: RoutableRequest
}

export class LiveFeed {
  readonly events = new EventLog(() => this.#soon())
  readonly #sources: FeedSources
  readonly #random: () => number
  readonly #watchers = new Set<Follower>()
  #sample: Sampled[] = []
  #seen = 0
  #lastMs = 0
  #told = 0
  #timer: NodeJS.Timeout | undefined

  constructor(sources: FeedSources, random: () => number = Math.random) {
    this.#sources = sources
    this.#random = random
  }

  get any(): boolean {
    return this.#watchers.size > 0
  }

  decided(record: DecisionRecord, routable: RoutableRequest): void {
    const at = this.#seen++ < SAMPLE ? this.#seen - 1 : Math.floor(this.#random() * this.#seen)
    if (at < SAMPLE) this.#sample[at] = { record, routable }
  }

  /** Undefined when there are too many. Otherwise the way to stop. */
  follow(follower: Follower, most = MAX_WATCHERS): (() => void) | undefined {
    if (this.#watchers.size >= most) return undefined
    if (!this.any) this.#begin()
    this.#watchers.add(follower)
    return () => {
      this.#watchers.delete(follower)
      if (!this.any) clearTimeout(this.#timer)
    }
  }

  /** The first event of a watcher. */
  hello(): string {
    const nowMs = Date.now()
    const { sliceMs, pace, decisions } = this.#sources
    const hello: Hello = {
      pulseMs: PULSE_MS,
      sampleSize: SAMPLE,
      sliceMs,
      pace: pace(nowMs).map(roundedPace),
      happenings: this.events.last(),
      decisions: decisions(SAMPLE)
        .map(record => shownAs(record))
        .toReversed(),
      pulse: this.#pulse(nowMs, [], 0, 0),
    }
    return `event: hello\ndata: ${JSON.stringify(hello)}\n\n`
  }

  close(): void {
    clearTimeout(this.#timer)
  }

  #begin(): void {
    this.#sample = []
    this.#seen = 0
    this.#lastMs = Date.now()
    this.#told = this.events.number
    this.#wait(PULSE_MS)
  }

  #soon(): void {
    if (!this.any) return
    clearTimeout(this.#timer)
    this.#wait(SOON_MS)
  }

  #wait(ms: number): void {
    this.#timer = setTimeout(() => {
      this.#beat()
      this.#wait(PULSE_MS)
    }, ms).unref()
  }

  #beat(): void {
    const nowMs = Date.now()
    const [sample, seen, sinceMs] = [this.#sample, this.#seen, nowMs - this.#lastMs]
    this.#sample = []
    this.#seen = 0
    this.#lastMs = nowMs
    const { place, shown } = this.#sources
    const decisions = sample.map(({ record, routable }) => {
      shown(record)
      return shownAs(record, place(routable))
    })
    decisions.sort((a, b) => a.timeMs - b.timeMs)
    const event = `event: pulse\ndata: ${JSON.stringify(this.#pulse(nowMs, decisions, seen, sinceMs))}\n\n`
    this.#told = this.events.number
    for (const watcher of this.#watchers) watcher(event)
  }

  #pulse(nowMs: number, sample: readonly LiveDecision[], seen: number, sinceMs: number): Pulse {
    const { routing, workers, load, health, pace } = this.#sources
    return {
      atMs: nowMs,
      routing: routing(),
      workers: workers(),
      ...load(),
      seen,
      sinceMs,
      sample,
      pace: pace(nowMs, FILLING_MS).map(roundedPace),
      health: health(),
      happenings: this.events.since(this.#told),
      watchers: this.#watchers.size,
    }
  }
}

function shownAs({ candidates, ...record }: DecisionRecord, at?: readonly [number, number]): LiveDecision {
  return {
    ...record,
    candidates: candidates.map(({ id, inflight, similarity }) => ({
      id,
      inflight,
      ...(similarity !== undefined && { similarity: Number.isNaN(similarity) ? null : rounded(similarity) }),
    })),
    ...(at && { at: [rounded(at[0]), rounded(at[1])] as const }),
  }
}

function roundedPace({ fromMs, policy, ttft, tpot }: PacePoint): PacePoint {
  const short = ({ count, mean, p50, p95 }: NonNullable<PacePoint['ttft']>) => ({
    count,
    mean: rounded(mean),
    p50: rounded(p50),
    p95: rounded(p95),
  })
  return { fromMs, policy, ...(ttft && { ttft: short(ttft) }), ...(tpot && { tpot: short(tpot) }) }
}

/** What is drawn needs no more digits. */
function rounded(value: number): number {
  return Math.round(value * 1e4) / 1e4
}
