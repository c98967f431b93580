/**
 * Sends the dashboard a pulse twice a second, independent of the number of decisions: it counts all of them
 * and shows a uniform random sample. Each pulse is built once for all watchers, and only if there are any.
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
/** Decisions shown per pulse: more are not readable. */
export const SAMPLE = 10
/** Time slices this recent may still change. */
const FILLING_MS = 10_000
/** After an event the pulse is sent early, together with events that follow it closely. */
const SOON_MS = 30
const MAX_WATCHERS = 32

export interface FeedSources {
  routing(): LiveRouting
  workers(): LiveWorker[]
  load(): { readonly running: number; readonly queued: number }
  health(): FitHealth
  pace(nowMs: number, ms?: number): PacePoint[]
  readonly sliceMs: number
  /** Recent decisions, for a new watcher. */
  decisions(limit: number): readonly DecisionRecord[]
  /** Position of a request's signature in the plane. */
  place(routable: RoutableRequest): readonly [number, number] | undefined
  /** Called for each decision that is shown. */
  shown(record: DecisionRecord): void
}

interface Sampled {
  readonly record: DecisionRecord
  readonly routable: RoutableRequest
}

export class LiveFeed {
  readonly events = new EventLog(() => this.#pulseSoon())
  readonly #sources: FeedSources
  readonly #random: () => number
  readonly #watchers = new Set<Follower>()
  #sample: Sampled[] = []
  #seen = 0
  #lastMs = 0
  #lastEvent = 0
  #timer: NodeJS.Timeout | undefined

  constructor(sources: FeedSources, random: () => number = Math.random) {
    this.#sources = sources
    this.#random = random
  }

  get isActive(): boolean {
    return this.#watchers.size > 0
  }

  decided(record: DecisionRecord, routable: RoutableRequest): void {
    const at = this.#seen++ < SAMPLE ? this.#seen - 1 : Math.floor(this.#random() * this.#seen)
    if (at < SAMPLE) this.#sample[at] = { record, routable }
  }

  /** Returns a function that stops following; undefined if there are too many watchers. */
  follow(follower: Follower, limit = MAX_WATCHERS): (() => void) | undefined {
    if (this.#watchers.size >= limit) return undefined
    if (!this.isActive) this.#begin()
    this.#watchers.add(follower)
    return () => {
      this.#watchers.delete(follower)
      if (!this.isActive) clearTimeout(this.#timer)
    }
  }

  /** The first event for a watcher. */
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
    this.#lastEvent = this.events.number
    this.#wait(PULSE_MS)
  }

  #pulseSoon(): void {
    if (!this.isActive) return
    clearTimeout(this.#timer)
    this.#wait(SOON_MS)
  }

  #wait(ms: number): void {
    this.#timer = setTimeout(() => {
      this.#sendPulse()
      this.#wait(PULSE_MS)
    }, ms).unref()
  }

  #sendPulse(): void {
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
    this.#lastEvent = this.events.number
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
      happenings: this.events.since(this.#lastEvent),
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
      similarity:
        similarity === undefined ? undefined : Number.isNaN(similarity) ? null : rounded(similarity),
    })),
    at: at && ([rounded(at[0]), rounded(at[1])] as const),
  }
}

function roundedPace({ fromMs, policy, ttft, tpot }: PacePoint): PacePoint {
  const short = ({ count, mean, p50, p95 }: NonNullable<PacePoint['ttft']>) => ({
    count,
    mean: rounded(mean),
    p50: rounded(p50),
    p95: rounded(p95),
  })
  return { fromMs, policy, ttft: ttft && short(ttft), tpot: tpot && short(tpot) }
}

/** Enough digits for drawing. */
function rounded(value: number): number {
  return Math.round(value * 1e4) / 1e4
}
