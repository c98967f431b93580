/**
 * Live recalibration: samples requests, notices drift, tries a refit in a thread, swaps the artifact if the
 * refit saves more than its noise, and takes the swap back if the tail of TPOT gets worse. In mode `suggest`
 * it does the same up to the swap, which an operator may then ask for.
 */
import type { Artifact } from '../fit/artifact.ts'
import { createRandom } from '../math/random.ts'
import { descriptorOf, type PolicyName, type RoutableRequest } from '../policy/decode-policy.ts'
import type { UnionCost } from '../policy/step-cost.ts'
import type { AdaptEvent, AdaptHold, AdaptState, AdaptView, AttemptView, SwapView } from './adapt-view.ts'
import type { AttemptInput, AttemptResult, AttemptWorker, InflightRequest } from './attempt.ts'
import { DriftDetector, rankOf } from './drift-detector.ts'
import { DriftHistory } from './drift-history.ts'
import { isWorthASwap } from './judge.ts'
import { type LiveModel, liveModel } from './live-model.ts'
import { LiveSample } from './live-sample.ts'
import { RecentTimes } from './recent-times.ts'
import type { AttemptRunner } from './run-attempt.ts'
import { type Outcome, SwapFiles } from './swap-files.ts'
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
  /** Undefined without an artifact or decode workers, or if the workers cannot have its clusters. */
  target(): AdapterTarget | undefined
  /** Why there is no target. */
  whyNoTarget(): string
  /** Requests on decode workers now, also those of other gateways. */
  running(): number
  /** True while an experiment holds the routing: nothing can be loaded. */
  isHeld(): boolean
  /**
   * Loads an artifact from a file, here and on all replicas, with the hold that goes with it. Resolves with
   * its hash. `assignment`: index of a worker → its cluster.
   */
  load(
    path: string,
    shownAs: string,
    assignment: ReadonlyMap<number, number>,
    hold?: AdaptHold,
  ): Promise<string>
  /** Bytes of an artifact with this hash, if other gateways have shared them. */
  fetch(sha256: string): Promise<Uint8Array | undefined>
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
  /** Names of the decode workers that take requests now. */
  readonly serving: readonly string[]
  inflight(): readonly InflightRequest[]
}

export type UndoResult = { readonly kind: 'ok' } | { readonly kind: 'refused'; readonly why: string }

/** Requests of the changed traffic that a first attempt needs: in all, and for each worker. */
const MIN_REQUESTS = 256
const MIN_REQUESTS_PER_WORKER = 32
/** Wait after an attempt without a gain; doubles with each. */
const RETRY_MS = 30_000
const MAX_RETRY_MS = 1_800_000
/** After a swap was undone or rolled back, which an operator may end by loading an artifact. */
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
  /** When policy, τ or workers had changed last. */
  readonly routingMs: number
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
  /** As of the last change of the artifact. */
  #inForce: AdapterTarget | undefined
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
  /** Policy, τ and workers, and when they changed. */
  #routing = ''
  #routingMs = -Infinity
  #hold: AdaptHold | undefined
  #folderProblem: string | undefined
  /** An experiment holds the routing. */
  #paused = false
  /** Streams before this were routed by an experiment. */
  #resumedMs = -Infinity
  #busy: 'refitting' | 'swapping' | undefined
  /** The running refit: its end, and what stops it. */
  #refit: { readonly ended: Promise<void>; readonly control: AbortController } | undefined
  #closed = false
  /** Writes to the folder, one after the other. */
  #saves: Promise<void> = Promise.resolve()

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

  /** Reads the swaps of earlier processes, and checks that the folder can be written. Never rejects. */
  async restore(): Promise<void> {
    try {
      await this.checkFolder()
      const { swaps, skipped } = await this.#files.list()
      for (const each of skipped) this.#host.happened({ kind: 'skipped', ...each })
      for (const { path, sha256, lineage, outcome } of swaps) {
        const { heldUntilMs, state = 'past', ...seen } = outcome ?? {}
        this.#list({ ...lineage, ...seen, file: path, sha256, state })
        // The newest one that lasts, and not if an operator has loaded another artifact since.
        const isInForce = this.#inForce?.sha256 === lineage.parentSha256
        const lasts = heldUntilMs !== undefined && heldUntilMs > this.#now() && this.#hold === undefined
        if (lasts && state !== 'past' && isInForce) this.held({ how: state, untilMs: heldUntilMs, sha256 })
      }
    } catch (error) {
      this.#host.happened({ kind: 'failed', problem: wordsOf(error) })
    }
  }

  /** Whether swaps can be written. With mode `suggest` only the view says so. */
  async checkFolder(): Promise<void> {
    try {
      await this.#files.checkWritable()
      this.#folderProblem = undefined
    } catch (error) {
      const isNew = this.#folderProblem === undefined
      this.#folderProblem = wordsOf(error)
      if (isNew && this.#options.mode === 'on')
        this.#host.happened({ kind: 'failed', problem: this.#folderProblem })
    }
  }

  /** A request was placed. `plain`: its plain counts if it was signed by recent ones. */
  decided(request: RoutableRequest, plain: Uint16Array | undefined): void {
    const model = this.#model
    const { id, signature, counts } = request
    const nowMs = this.#now()
    if (counts !== undefined && this.#sample.has({ id, counts })) return
    this.#arrivals.add(0, nowMs)
    if (model === undefined || counts === undefined || signature?.length !== model.width) return
    const best = model.best(signature)
    this.#history.add(rankOf(best, model.quantiles), nowMs)
    this.#sample.offer({ id, counts, plain: model.hasFallback ? plain : undefined }, nowMs)
    const change = this.#detector.add(best, nowMs)
    if (change === undefined) return
    const meanRank = this.#detector.meanRank!
    if (change === 'drift') {
      this.#changedMs = this.#detector.sinceMs!
      this.#host.happened({ kind: 'drift', meanRank, sinceMs: this.#changedMs })
    } else {
      // What was suggested is for traffic that has gone.
      this.#suggestion = undefined
      this.#retryMs = RETRY_MS
      this.#notBeforeMs = 0
      this.#host.happened({ kind: 'recovered', meanRank })
    }
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

  /**
   * Called after every change of the artifact, by this class too: another was loaded, or the one in force was
   * refitted to other workers.
   */
  artifactChanged(cause: 'artifact' | 'refit' = 'artifact'): void {
    const target = this.#host.target()
    const before = this.#model
    if (target === undefined) {
      this.#model = undefined
      return
    }
    const { artifact, sha256 } = target
    this.#noticeSwap(target)
    this.#inForce = target
    this.#model = liveModel(artifact)
    this.#detector = new DriftDetector(artifact.about.bestSimilarity)
    if (before !== undefined && before.source !== this.#model.source) this.#sample.forget()
    if (this.#watch !== undefined && this.#watch.swap.sha256 !== sha256) this.#watch = undefined
    if (this.#suggestion?.parentSha256 !== sha256) this.#suggestion = undefined
    if (this.#busy === 'swapping') return
    this.#refineAt = Infinity
    this.#notBeforeMs = 0
    this.#retryMs = RETRY_MS
    // An operator has loaded it; if another gateway has, `held` comes next.
    if (cause === 'artifact') this.#hold = undefined
  }

  /** The hold that all gateways of the same workers share: after an undo or a rollback on any of them. */
  held(hold: AdaptHold | undefined): void {
    this.#hold = hold !== undefined && this.#now() < hold.untilMs ? hold : undefined
    if (hold === undefined) return
    const swap = this.#swaps.find(({ sha256 }) => sha256 === hold.sha256)
    if (swap !== undefined && swap.state !== hold.how) this.#ended(swap, hold)
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
    if (this.#hold !== undefined && nowMs >= this.#hold.untilMs) this.#hold = undefined
    this.#noticeRouting(nowMs)
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
    const result = await this.#swapTo(suggestion)
    if (result.kind === 'ok') this.#hold = undefined
    return result
  }

  /** Returns to the artifact before the swap in force. Stops a running refit, which is for that swap. */
  async undo(): Promise<UndoResult> {
    if (this.#refit !== undefined && this.#swapInForce() !== undefined) {
      this.#refit.control.abort(new Error('the swap in force is undone'))
      await this.#refit.ended
    }
    return this.#goBack('undone')
  }

  view(): AdaptView {
    const target = this.#host.target()
    const { sampleRequests, halfLifeMs, mode, minGain } = this.#options
    const why = this.#whyIdle()
    return {
      mode,
      state: this.#state(why),
      note: why ?? (this.#host.isHeld() ? PAUSED : this.#hold && holdWords(this.#hold)),
      problem: this.#folderProblem,
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
        swap.sha256 === target?.sha256 ? { ...swap, state: 'in_force' } : swap,
      ),
    }
  }

  close(): void {
    this.#closed = true
    this.#refit?.control.abort(new Error('the gateway stops'))
  }

  #state(why: string | undefined): AdaptState {
    if (why !== undefined) return 'idle'
    if (this.#busy !== undefined) return this.#busy
    if (this.#hold !== undefined || this.#host.isHeld()) return 'held'
    if (this.#watch !== undefined) return 'watching'
    return this.#detector.isDrifting ? 'drifting' : 'steady'
  }

  #whyIdle(): string | undefined {
    const target = this.#host.target()
    if (target === undefined) return this.#host.whyNoTarget()
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
    if (this.#hold !== undefined || nowMs < this.#notBeforeMs || this.#whyIdle() !== undefined) return false
    const usable = this.#sample.countSince(this.#changedMs)
    return this.#detector.isDrifting ? usable >= this.#needed() : usable >= this.#refineAt
  }

  async #attempt(nowMs: number): Promise<void> {
    const control = new AbortController()
    let end = () => {}
    this.#refit = { control, ended: new Promise<void>(resolve => (end = resolve)) }
    const isRefinement = !this.#detector.isDrifting
    try {
      await this.#judge(nowMs, control.signal)
    } finally {
      this.#busy = undefined
      this.#refit = undefined
      end()
    }
    if (control.signal.aborted) return
    // An experiment has begun during the refit: the next attempt is due when it ends.
    if (this.#host.isHeld()) return
    if (this.#suggestion !== undefined && this.#options.mode === 'on') await this.#swapTo(this.#suggestion)
    else if (!isRefinement || this.#options.mode === 'suggest') this.#waitLonger()
  }

  /** Refits, and makes a suggestion if that gives a gain. */
  async #judge(nowMs: number, signal: AbortSignal): Promise<void> {
    const target = this.#host.target()!
    const sample = this.#sample.snapshot(this.#changedMs)
    this.#refineAt = Infinity
    const startMs = performance.now()
    this.#busy = 'refitting'
    try {
      const result = await this.#runner.run(this.#inputOf(target, sample, nowMs), signal)
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
      if (signal.aborted) return
      const problem = wordsOf(error)
      this.#last = { atMs: nowMs, seconds: (performance.now() - startMs) / 1000, verdict: 'failed', problem }
      this.#host.happened({ kind: 'judged', attempt: this.#last })
    }
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

  /** Refused if another artifact came first, workers came or left, or the files cannot be written. */
  async #swapTo({ result, parentSha256 }: Suggestion): Promise<UndoResult> {
    const target = this.#host.target()
    this.#suggestion = undefined
    if (target === undefined) return refused(this.#host.whyNoTarget())
    if (target.sha256 !== parentSha256) return refused('It was made for another artifact.')
    const [has, needs] = [target.workers.length, result.artifact.about.workers]
    if (has !== needs)
      return refused(`It was made for ${needs} decode workers, and there are ${has}: wait for the next one.`)
    this.#busy = 'swapping'
    let path: string | undefined
    try {
      await this.#files.saveParent(target.artifact, target.file, target.sha256)
      path = await this.#files.saveSwap(result.artifact)
      this.#folderProblem = undefined
      this.#known.set(target.sha256, { shownAs: target.file, assignment: target.assigned })
      // Only streams of the same traffic: those before the change were of other requests.
      const before = this.#streams.between(Math.max(this.#changedMs, this.#routingMs, this.#resumedMs))
      const nowMs = this.#now()
      const arrivalsPerMs = rateOf(this.#arrivals, nowMs - this.#options.watchMs, nowMs)
      const sha256 = await this.#host.load(path, path, target.assignment)
      this.#known.set(sha256, { shownAs: path, assignment: target.assignment })
      const { lineage } = result.artifact.about
      const swap: MutableSwap = { ...lineage!, file: path, sha256, moved: result.moved, state: 'past' }
      this.#list(swap)
      if (this.#last !== undefined) this.#last = { ...this.#last, verdict: 'swap' }
      const routingMs = this.#routingMs
      this.#watch = { swap, sinceMs: this.#now() + SETTLE_MS, before, arrivalsPerMs, routingMs, looks: 0 }
      this.#retryMs = RETRY_MS
      this.#notBeforeMs = 0
      const used = result.fitted + result.heldOut
      this.#refineAt = 2 * used <= this.#options.sampleRequests ? 2 * used : Infinity
      this.#host.happened({ kind: 'swapped', swap })
      this.#save(() => this.#files.prune())
      await this.#saves
      return { kind: 'ok' }
    } catch (error) {
      const problem = wordsOf(error)
      const written = path
      if (written !== undefined) this.#save(() => this.#files.discard(written))
      await this.#saves
      // An experiment began between the check and the load.
      if (this.#host.isHeld()) return refused(PAUSED)
      if (this.#last !== undefined) this.#last = { ...this.#last, verdict: 'failed', problem }
      this.#host.happened({ kind: 'failed', problem })
      this.#waitLonger()
      return refused(problem)
    } finally {
      this.#busy = undefined
    }
  }

  /** Writes to the folder in turn, beside what goes on. What fails is reported. */
  #save(work: () => Promise<void>): void {
    this.#saves = this.#saves
      .then(work)
      .catch((error: unknown) => this.#host.happened({ kind: 'failed', problem: wordsOf(error) }))
  }

  /** Lists a swap unless it is known, newest first. */
  #list(swap: MutableSwap): void {
    if (this.#swaps.some(({ sha256 }) => sha256 === swap.sha256)) return
    this.#swaps.push(swap)
    this.#swaps.sort((a, b) => b.atMs - a.atMs)
    this.#swaps.splice(this.#options.kept)
  }

  /** An artifact that another gateway or an operator has loaded may be a swap: then it can be undone here. */
  #noticeSwap({ artifact, sha256, file }: AdapterTarget): void {
    const { lineage } = artifact.about
    const before = this.#inForce
    if (lineage === undefined || this.#busy === 'swapping' || before?.sha256 === sha256) return
    this.#list({ ...lineage, file, sha256, state: 'past' })
    if (before?.sha256 !== lineage.parentSha256) return
    this.#known.set(before.sha256, { shownAs: before.file, assignment: before.assigned })
    this.#save(async () => void (await this.#files.saveParent(before.artifact, before.file, before.sha256)))
  }

  /** Workers may come without a change of the artifact. */
  #noticeRouting(nowMs: number): void {
    const target = this.#host.target()
    if (target === undefined) return
    if (target.artifact !== this.#inForce?.artifact) this.artifactChanged('refit')
    const { policy, tau, serving } = target
    const routing = JSON.stringify([policy, tau, serving.toSorted()])
    if (routing === this.#routing) return
    this.#routing = routing
    this.#routingMs = nowMs
  }

  async #checkTail(watch: Watch, nowMs: number): Promise<void> {
    const { swap, sinceMs, before } = watch
    // Then a longer tail says nothing about the swap.
    if (this.#routingMs !== watch.routingMs) return this.#keep(swap, 'policy, τ or workers have changed')
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
    const isOver = watch.looks === LOOKS.length || nowMs >= sinceMs + this.#options.watchMs
    // Traffic that changes again makes the comparison void.
    if (this.#detector.isDrifting) this.#keep(swap, 'traffic has changed again')
    else if (isOver)
      this.#keep(swap, swap.p99AfterMs === undefined ? 'too few streams' : 'p99 TPOT is no worse')
  }

  #keep(swap: MutableSwap, why: string): void {
    this.#watch = undefined
    this.#ended(swap)
    this.#host.happened({ kind: 'kept', swap, why })
  }

  /** Remembers what became of a swap, also for the next process. */
  #ended(swap: MutableSwap, hold?: AdaptHold): void {
    if (hold !== undefined) swap.state = hold.how
    const { moved, p99BeforeMs, p99AfterMs } = swap
    const state = hold?.how ?? 'past'
    const outcome: Outcome = { state, heldUntilMs: hold?.untilMs, moved, p99BeforeMs, p99AfterMs }
    this.#save(() => this.#files.saveOutcome(swap.file, outcome))
  }

  #swapInForce(): MutableSwap | undefined {
    const current = this.#host.target()?.sha256
    return this.#swaps.find(({ sha256 }) => sha256 === current)
  }

  async #goBack(how: AdaptHold['how']): Promise<UndoResult> {
    if (this.#busy !== undefined) return refused('A refit or a swap is running: try again.')
    const swap = this.#swapInForce()
    if (swap === undefined) return refused('The artifact in force does not come from a swap.')
    const { parentSha256, sha256 } = swap
    const known = this.#known.get(parentSha256)
    const hold: AdaptHold = { how, untilMs: this.#now() + HOLD_MS, sha256 }
    this.#busy = 'swapping'
    try {
      const path = await this.#parentOf(parentSha256)
      if (path === undefined)
        return refused(
          'This gateway lacks the artifact before the swap: undo it on the gateway that made it, or load an artifact.',
        )
      const assignment = known?.assignment ?? this.#host.target()!.assignment
      await this.#host.load(path, known?.shownAs ?? path, assignment, hold)
    } catch (error) {
      const why = wordsOf(error)
      this.#host.happened({ kind: 'failed', problem: why })
      return refused(why)
    } finally {
      this.#busy = undefined
    }
    this.#watch = undefined
    this.#refineAt = Infinity
    this.#hold = hold
    this.#ended(swap, hold)
    this.#host.happened({ kind: how, swap })
    await this.#saves
    return { kind: 'ok' }
  }

  /** File of the artifact before a swap, which may come from another gateway. */
  async #parentOf(sha256: string): Promise<string | undefined> {
    await this.#saves
    const path = await this.#files.findParent(sha256)
    if (path !== undefined) return path
    const bytes = await this.#host.fetch(sha256)
    return bytes && this.#files.saveParentBytes(bytes, sha256)
  }
}

/** Per millisecond; of those that are kept. */
function rateOf(arrivals: RecentTimes, fromMs: number, toMs: number): number {
  const { count, sinceMs } = arrivals.spanOf(fromMs, toMs)
  return count / Math.max(1, toMs - sinceMs)
}

const refused = (why: string): UndoResult => ({ kind: 'refused', why })

const wordsOf = (error: unknown) => (error instanceof Error ? error.message : String(error))

function holdWords({ how, untilMs }: AdaptHold): string {
  const was = how === 'undone' ? 'undone' : 'rolled back'
  return `The last swap was ${was}: no refit before ${new Date(untilMs).toISOString()}.`
}
