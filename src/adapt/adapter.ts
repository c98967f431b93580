/**
 * Live recalibration: samples requests, notices drift, tries a refit in a thread, swaps the artifact if the
 * refit saves more than its noise, and takes the swap back if the tail of TPOT gets worse. In mode `suggest`
 * it does the same up to the swap, which an operator may then ask for.
 */
import type { Artifact } from '../fit/artifact.ts'
import { createRandom } from '../math/random.ts'
import { rowMatrixOf } from '../math/row-matrix.ts'
import { descriptorOf, type PolicyName, type RoutableRequest } from '../policy/decode-policy.ts'
import type { UnionCost } from '../policy/step-cost.ts'
import { dimensionsOf } from '../signature/signature.ts'
import { TRANSFORM } from '../signature/transform.ts'
import type { AdaptEvent, AdaptState, AdaptView, AttemptView, SwapView } from './adapt-view.ts'
import type { AttemptInput, AttemptResult, AttemptWorker, InflightRequest } from './attempt.ts'
import { DriftDetector, rankOf } from './drift-detector.ts'
import { DriftHistory } from './drift-history.ts'
import { isWorthASwap } from './judge.ts'
import { LiveSample } from './live-sample.ts'
import { RecentTimes } from './recent-times.ts'
import type { AttemptRunner } from './run-attempt.ts'
import { SwapFiles } from './swap-files.ts'
import { compareTails, LOOKS } from './tail-watch.ts'

export interface AdapterOptions {
  readonly mode: 'suggest' | 'on'
  readonly folder: string
  /** Swaps kept in the folder. */
  readonly kept: number
  readonly sampleRequests: number
  readonly halfLifeMs: number
  /** Smallest gain that is worth a swap, as a share. */
  readonly minGain: number
  /** How long the tail is watched after a swap. */
  readonly watchMs: number
}

/** What it is told about the gateway, and what it may do there. */
export interface AdapterHost {
  /** Undefined without an artifact or decode workers. */
  target(): AdapterTarget | undefined
  /** Requests on decode workers now. */
  running(): number
  /** True while an experiment holds the routing: nothing can be loaded. */
  isHeld(): boolean
  /** Loads an artifact from a file. Resolves with its hash. `assignment`: index of a worker → its cluster. */
  load(path: string, shownAs: string, assignment: ReadonlyMap<number, number>): Promise<string>
  /** For log, events and metrics. */
  happened(event: AdaptEvent): void
}

/** The routing in force. */
export interface AdapterTarget {
  readonly artifact: Artifact
  readonly sha256: string
  readonly file: string
  readonly policy: PolicyName
  readonly tau: number
  readonly cost?: UnionCost
  /** Decode workers in the order of the clusters that a refit would give them, and those clusters. */
  readonly workers: readonly AttemptWorker[]
  readonly assignment: ReadonlyMap<number, number>
  /** The assignment in force. */
  readonly assigned: ReadonlyMap<number, number>
  inflight(): readonly InflightRequest[]
}

export type UndoResult = { readonly kind: 'ok' } | { readonly kind: 'refused'; readonly why: string }

/** Requests of the changed traffic that a first attempt needs: in all, and for each worker. */
const MIN_REQUESTS = 256
const MIN_REQUESTS_PER_WORKER = 32
/** Wait after an attempt without a gain; doubles with each. */
const RETRY_MS = 30_000
const MAX_RETRY_MS = 1_800_000
/** After a swap was undone or rolled back. */
const HOLD_MS = 1_800_000
/** Streams that end this soon after a swap were mostly decoded before it. */
const SETTLE_MS = 10_000
/** Streams kept for the comparison of tails. */
const STREAMS = LOOKS.at(-1)!
/** With this many times the arrivals, a longer tail says nothing about the swap. */
const MORE_LOAD = 1.15
const PAUSED = 'An experiment is running: recalibration is paused until it ends.'
/** Weight of a second in the mean number of requests in flight. */
const INFLIGHT_WEIGHT = 1 / 10

interface Suggestion {
  readonly result: AttemptResult
  readonly parentSha256: string
}

interface Watch {
  readonly swap: MutableSwap
  sinceMs: number
  readonly before: readonly number[]
  readonly arrivalsPerMs: number
  /** Comparisons so far. */
  looks: number
}

type MutableSwap = { -readonly [Key in keyof SwapView]: SwapView[Key] }

interface Known {
  readonly shownAs: string
  readonly assignment: ReadonlyMap<number, number>
}

export class Adapter {
  readonly #options: AdapterOptions
  readonly #host: AdapterHost
  readonly #runner: AttemptRunner
  readonly #now: () => number
  readonly #files: SwapFiles
  readonly #sample: LiveSample
  readonly #history = new DriftHistory()
  readonly #streams = new RecentTimes(STREAMS)
  readonly #arrivals = new RecentTimes(4 * STREAMS)
  readonly #swaps: MutableSwap[] = []
  /** Names and assignments of artifacts that an undo may return to, by hash. */
  readonly #known = new Map<string, Known>()
  #model: LiveModel | undefined
  #detector = new DriftDetector([])
  #meanInflight: number | undefined
  #last: AttemptView | undefined
  #suggestion: Suggestion | undefined
  #watch: Watch | undefined
  #retryMs = RETRY_MS
  #notBeforeMs = 0
  /** A swap that was fitted on few requests is tried again with this many. */
  #refineAt = Infinity
  #changedMs = -Infinity
  #held: string | undefined
  /** An experiment holds the routing. */
  #paused = false
  /** Streams before this were routed by an experiment. */
  #resumedMs = -Infinity
  #busy: 'refitting' | 'swapping' | undefined
  #closed = false

  constructor(options: AdapterOptions, host: AdapterHost, runner: AttemptRunner, now = Date.now) {
    this.#options = options
    this.#host = host
    this.#runner = runner
    this.#now = now
    this.#files = new SwapFiles(options.folder, options.kept)
    this.#sample = new LiveSample({
      capacity: options.sampleRequests,
      halfLifeMs: options.halfLifeMs,
      random: createRandom(now()),
    })
    this.artifactChanged()
  }

  /** Reads the swaps of earlier processes from the folder. */
  async restore(): Promise<void> {
    for (const { path, sha256, lineage } of await this.#files.list())
      if (!this.#swaps.some(swap => swap.sha256 === sha256))
        this.#swaps.push({ ...lineage, file: path, sha256, state: 'past' })
  }

  /** A request was placed. `plain`: its plain counts if it was signed by recent ones. */
  decided(request: RoutableRequest, plain: Uint16Array | undefined): void {
    const model = this.#model
    const { id, signature, counts } = request
    const nowMs = this.#now()
    this.#arrivals.add(0, nowMs)
    if (model === undefined || counts === undefined || signature?.length !== model.width) return
    const best = model.best(signature)
    this.#history.add(rankOf(best, model.quantiles), nowMs)
    this.#sample.offer({ id, counts, plain: model.hasFallback ? plain : undefined }, nowMs)
    if (!this.#detector.add(best, nowMs)) return
    this.#changedMs = this.#detector.sinceMs!
    this.#host.happened({ kind: 'drift', meanRank: this.#detector.meanRank!, sinceMs: this.#changedMs })
  }

  /** Expert counts over the decode steps of a request, from its worker. */
  reported(id: string, steps: number, counts: ArrayLike<number>): void {
    if (steps > 0)
      this.#sample.report(
        id,
        Uint8Array.from(counts, count => Math.min(255, Math.round((255 * count) / steps))),
      )
  }

  /** A stream has ended: mean time between its tokens. */
  streamed(tokenMs: number): void {
    this.#streams.add(tokenMs, this.#now())
  }

  /** Called after every change of the artifact, by this class too. */
  artifactChanged(): void {
    const target = this.#host.target()
    const before = this.#model
    if (target === undefined) {
      this.#model = undefined
      return
    }
    const { artifact, sha256 } = target
    this.#model = liveModel(artifact)
    this.#detector = new DriftDetector(artifact.about.bestSimilarity)
    if (before !== undefined && before.source !== this.#model.source) this.#sample.forget()
    if (this.#watch !== undefined && this.#watch.swap.sha256 !== sha256) this.#watch = undefined
    if (this.#suggestion?.parentSha256 !== sha256) this.#suggestion = undefined
    if (this.#busy === 'swapping') return
    // An operator or another gateway has loaded it.
    this.#refineAt = Infinity
    this.#held = undefined
    this.#notBeforeMs = 0
    this.#retryMs = RETRY_MS
  }

  /** Called about once a second. Resolves when nothing is left to do. */
  async tick(): Promise<void> {
    const running = this.#host.running()
    this.#meanInflight =
      this.#meanInflight === undefined
        ? running
        : this.#meanInflight + INFLIGHT_WEIGHT * (running - this.#meanInflight)
    if (this.#busy !== undefined || this.#closed) return
    const nowMs = this.#now()
    if (this.#isPaused(nowMs)) return
    if (this.#held !== undefined && nowMs >= this.#notBeforeMs) this.#held = undefined
    if (this.#watch !== undefined) await this.#checkTail(this.#watch, nowMs)
    else if (this.#isDue(nowMs)) await this.#attempt(nowMs)
  }

  /** After an experiment the tail is watched again from the start: its streams say nothing about a swap. */
  #isPaused(nowMs: number): boolean {
    const wasPaused = this.#paused
    this.#paused = this.#host.isHeld()
    if (this.#paused || !wasPaused) return this.#paused
    this.#resumedMs = nowMs + SETTLE_MS
    if (this.#watch !== undefined) {
      this.#watch.sinceMs = this.#resumedMs
      this.#watch.looks = 0
    }
    return false
  }

  /** Swaps to what was suggested. */
  async swap(): Promise<UndoResult> {
    if (this.#busy !== undefined) return refused('A refit or a swap is running: try again.')
    const suggestion = this.#suggestion
    if (suggestion === undefined) return refused('There is no suggestion for the artifact in force.')
    if (this.#host.isHeld()) return refused(PAUSED)
    this.#held = undefined
    return (await this.#swapTo(suggestion)) ? { kind: 'ok' } : refused(this.#last?.problem ?? 'It failed.')
  }

  /** Returns to the artifact before the swap in force. */
  undo(): Promise<UndoResult> {
    return this.#goBack('undone')
  }

  view(): AdaptView {
    const target = this.#host.target()
    const { sampleRequests, halfLifeMs, mode, minGain } = this.#options
    const why = this.#whyIdle()
    return {
      mode,
      state: this.#state(why),
      note: why ?? (this.#host.isHeld() ? PAUSED : this.#held),
      drift: {
        meanRank: this.#detector.meanRank,
        sinceMs: this.#detector.sinceMs,
        history: this.#history.points(),
      },
      sample: {
        requests: this.#sample.size,
        capacity: sampleRequests,
        halfLifeMs,
        bytes: this.#sample.bytes,
        reported: this.#sample.reported,
        /** Requests that the next attempt waits for, and those that it has. */
        needed: this.#needed(),
        usable: this.#sample.countSince(this.#changedMs),
      },
      minGain,
      last: this.#last,
      suggestion: this.#suggestion !== undefined,
      swaps: this.#swaps.map(swap =>
        swap.state === 'past' && swap.sha256 === target?.sha256 ? { ...swap, state: 'in_force' } : swap,
      ),
    }
  }

  close(): void {
    this.#closed = true
    this.#runner.close()
  }

  #state(why: string | undefined): AdaptState {
    if (why !== undefined) return 'idle'
    if (this.#busy !== undefined) return this.#busy
    if (this.#held !== undefined || this.#host.isHeld()) return 'held'
    if (this.#watch !== undefined) return 'watching'
    return this.#detector.isDrifting ? 'drifting' : 'steady'
  }

  #whyIdle(): string | undefined {
    const target = this.#host.target()
    if (target === undefined) return 'No artifact or no decode worker.'
    const { needs } = descriptorOf(target.policy)
    if (needs.includes('labels')) return `The policy ${target.policy} needs labels, which live requests lack.`
    if (!needs.includes('signature') && !needs.includes('counts'))
      return `The policy ${target.policy} does not look at experts.`
    return undefined
  }

  #needed(): number {
    const workers = this.#host.target()?.workers.length ?? 0
    // Older requests keep their places for a while: the sample is never all new.
    const most = Math.floor(this.#options.sampleRequests / 2)
    return Math.min(most, Math.max(MIN_REQUESTS, MIN_REQUESTS_PER_WORKER * workers))
  }

  #isDue(nowMs: number): boolean {
    if (nowMs < this.#notBeforeMs || this.#whyIdle() !== undefined) return false
    const usable = this.#sample.countSince(this.#changedMs)
    return this.#detector.isDrifting ? usable >= this.#needed() : usable >= this.#refineAt
  }

  async #attempt(nowMs: number): Promise<void> {
    const target = this.#host.target()!
    const sample = this.#sample.snapshot(this.#changedMs)
    const isRefinement = !this.#detector.isDrifting
    this.#refineAt = Infinity
    const startMs = performance.now()
    this.#busy = 'refitting'
    try {
      const result = await this.#runner.run(this.#inputOf(target, sample, nowMs))
      const { gain, judgedBy, fitted, heldOut, moved, inflight } = result
      const isGain = isWorthASwap(gain, this.#options.minGain)
      this.#last = {
        atMs: nowMs,
        seconds: (performance.now() - startMs) / 1000,
        gain: gain.mean,
        gainHalf: gain.half,
        judgedBy,
        fitted,
        heldOut,
        moved,
        inflight,
        verdict: isGain ? (this.#options.mode === 'on' ? 'swap' : 'suggest') : 'no_gain',
      }
      this.#host.happened({ kind: 'judged', attempt: this.#last })
      this.#suggestion = isGain ? { result, parentSha256: target.sha256 } : undefined
    } catch (error) {
      if (this.#closed) return
      const problem = error instanceof Error ? error.message : String(error)
      this.#last = { atMs: nowMs, seconds: (performance.now() - startMs) / 1000, verdict: 'failed', problem }
      this.#host.happened({ kind: 'judged', attempt: this.#last })
    } finally {
      this.#busy = undefined
    }
    // An experiment has begun during the refit: the next attempt is due when it ends.
    if (this.#host.isHeld()) return
    if (this.#suggestion !== undefined && this.#options.mode === 'on' && !this.#closed) {
      await this.#swapTo(this.#suggestion)
    } else if (!isRefinement || this.#options.mode === 'suggest') this.#waitLonger()
  }

  #waitLonger(): void {
    this.#notBeforeMs = this.#now() + this.#retryMs
    this.#retryMs = Math.min(MAX_RETRY_MS, 2 * this.#retryMs)
  }

  #inputOf(target: AdapterTarget, sample: AttemptInput['sample'], nowMs: number): AttemptInput {
    const { artifact, workers, policy, tau, cost, sha256 } = target
    return {
      sample,
      artifact,
      workers,
      inflight: target.inflight(),
      policy,
      tau,
      cost,
      meanInflight: this.#meanInflight ?? workers.length,
      seed: artifact.about.seed,
      parentSha256: sha256,
      atMs: nowMs,
    }
  }

  /** False if another artifact came first, or the files cannot be written. */
  async #swapTo({ result, parentSha256 }: Suggestion): Promise<boolean> {
    const target = this.#host.target()
    this.#suggestion = undefined
    if (target?.sha256 !== parentSha256 || target.workers.length !== result.artifact.about.workers)
      return false
    this.#busy = 'swapping'
    try {
      await this.#files.saveParent(target.artifact, target.file, target.sha256)
      const path = await this.#files.saveSwap(result.artifact)
      this.#known.set(target.sha256, { shownAs: target.file, assignment: target.assigned })
      // Only streams of the same traffic: those before the change were of other requests.
      const before = this.#streams.between(Math.max(this.#changedMs, this.#resumedMs))
      const nowMs = this.#now()
      const arrivalsPerMs = rateOf(this.#arrivals, nowMs - this.#options.watchMs, nowMs)
      const sha256 = await this.#host.load(path, path, target.assignment)
      this.#known.set(sha256, { shownAs: path, assignment: target.assignment })
      const { lineage } = result.artifact.about
      const swap: MutableSwap = { ...lineage!, file: path, sha256, moved: result.moved, state: 'past' }
      this.#swaps.unshift(swap)
      this.#watch = { swap, sinceMs: this.#now() + SETTLE_MS, before, arrivalsPerMs, looks: 0 }
      this.#retryMs = RETRY_MS
      this.#notBeforeMs = 0
      const used = result.fitted + result.heldOut
      this.#refineAt = 2 * used <= this.#options.sampleRequests ? 2 * used : Infinity
      this.#host.happened({ kind: 'swapped', swap })
      await this.#files.prune()
      this.#swaps.splice(this.#options.kept)
      return true
    } catch (error) {
      // It began between the check and the load.
      if (this.#host.isHeld()) return false
      const problem = error instanceof Error ? error.message : String(error)
      if (this.#last !== undefined) this.#last = { ...this.#last, verdict: 'failed', problem }
      this.#host.happened({ kind: 'failed', problem })
      this.#waitLonger()
      return false
    } finally {
      this.#busy = undefined
    }
  }

  async #checkTail(watch: Watch, nowMs: number): Promise<void> {
    const { swap, sinceMs, before } = watch
    if (nowMs < sinceMs) return
    const after = this.#streams.between(sinceMs)
    if (after.length >= (LOOKS[watch.looks] ?? Infinity)) {
      const tail = compareTails(before, after.slice(0, LOOKS[watch.looks++]))
      swap.p99BeforeMs = tail?.before
      swap.p99AfterMs = tail?.after
      const moreLoad = rateOf(this.#arrivals, sinceMs, nowMs) > MORE_LOAD * watch.arrivalsPerMs
      if (tail?.isWorse === true && !moreLoad) {
        await this.#goBack('rolled_back')
        return
      }
    }
    // Traffic that changes again makes the comparison void.
    const isOver = watch.looks === LOOKS.length || nowMs >= sinceMs + this.#options.watchMs
    if (!isOver && !this.#detector.isDrifting) return
    this.#watch = undefined
    this.#host.happened({ kind: 'kept', swap })
  }

  async #goBack(how: 'undone' | 'rolled_back'): Promise<UndoResult> {
    if (this.#busy !== undefined) return refused('A refit or a swap is running: try again.')
    const current = this.#host.target()?.sha256
    const swap = this.#swaps.find(({ sha256 }) => sha256 === current)
    if (swap === undefined) return refused('The artifact in force does not come from a swap.')
    const { parentSha256 } = swap
    const path = this.#files.parentPath(parentSha256)
    const known = this.#known.get(parentSha256)
    this.#busy = 'swapping'
    try {
      const assignment = known?.assignment ?? this.#host.target()!.assignment
      await this.#host.load(path, known?.shownAs ?? path, assignment)
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      this.#host.happened({ kind: 'failed', problem: why })
      return refused(why)
    } finally {
      this.#busy = undefined
    }
    swap.state = how
    this.#watch = undefined
    this.#refineAt = Infinity
    this.#notBeforeMs = this.#now() + HOLD_MS
    this.#held = `The last swap was ${how === 'undone' ? 'undone' : 'rolled back'}: no refit before ${new Date(this.#notBeforeMs).toISOString()}.`
    this.#host.happened({ kind: how, swap })
    return { kind: 'ok' }
  }
}

/** What a live request is compared with. */
interface LiveModel {
  readonly width: number
  readonly source: string
  readonly hasFallback: boolean
  readonly quantiles: Artifact['about']['bestSimilarity']
  /** Highest cosine to any centroid, whatever the state of its worker. */
  best(signature: Float32Array): number
}

function liveModel({ primary, fallback, about }: Artifact): LiveModel {
  const width = dimensionsOf(primary.model)
  const matrix = rowMatrixOf(primary.centroids, width)
  const cosines = new Float32Array(matrix.rows)
  return {
    width,
    source: TRANSFORM[primary.model.transform].source,
    hasFallback: fallback !== undefined,
    quantiles: about.bestSimilarity,
    best(signature) {
      matrix.similarities(signature, cosines)
      return cosines.reduce((a, b) => Math.max(a, b), -1)
    },
  }
}

/** Per millisecond; of those that are kept. */
function rateOf(arrivals: RecentTimes, fromMs: number, toMs: number): number {
  const { count, sinceMs } = arrivals.spanOf(fromMs, toMs)
  return count / Math.max(1, toMs - sinceMs)
}

const refused = (why: string): UndoResult => ({ kind: 'refused', why })
