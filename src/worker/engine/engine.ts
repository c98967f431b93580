/**
 * The worker’s engine. Steps run while there is something to compute; tokens are emitted when a step ends. A
 * step is planned and computed at its start, then the engine waits for its modelled end; requests may arrive,
 * end and be aborted in the meantime. An idle engine runs nothing.
 */
import type {
  BackEnd,
  EngineSettings,
  EngineStats,
  ExpertUnion,
  Generation,
  GenerationEnd,
  GenerationEvents,
} from '../types.ts'
import type { RunningGeneration, StepResult, WorkerEngine } from '../types.ts'
import { fetchKv } from './fetch-kv.ts'
import { KeptLeases } from './kept-blocks.ts'
import { KvBlocks } from './kv-blocks.ts'
import { faultOf, RequestFault } from './request-fault.ts'
import { type PlannedWork, Scheduler } from './scheduler.ts'
import { Sequence } from './sequence.ts'
import { SignatureCache } from './signature-cache.ts'
import { preciseClock, type StepClock } from './step-clock.ts'
import { StepTimes } from './step-times.ts'
import { Totals } from './totals.ts'

export function createEngine(
  backEnd: BackEnd,
  settings: EngineSettings,
  clock: StepClock = preciseClock(),
): WorkerEngine {
  return new Engine(backEnd, settings, clock)
}

class Engine implements WorkerEngine {
  readonly settings: EngineSettings
  readonly #backEnd: BackEnd
  readonly #clock: StepClock
  readonly #signatures: SignatureCache | undefined
  readonly #blocks: KvBlocks
  readonly #leases: KeptLeases
  readonly #scheduler: Scheduler
  readonly #times = new StepTimes()
  readonly #alive = new Set<Sequence>()
  /** A step is running or about to be planned. */
  #turning = false
  #closed = false
  #last: Pick<EngineStats, 'batch' | 'activePerLayer' | 'active'> | undefined
  readonly #totals = new Totals()

  constructor(backEnd: BackEnd, settings: EngineSettings, clock: StepClock) {
    this.settings = settings
    this.#backEnd = backEnd
    this.#clock = clock
    const { blocks, blockTokens, capture, halfLife } = settings
    this.#signatures = capture ? new SignatureCache(backEnd.model, blocks, blockTokens, halfLife) : undefined
    this.#blocks = new KvBlocks(blocks, blockTokens, block => this.#signatures?.reset(block))
    this.#leases = new KeptLeases(this.#blocks, backEnd, () => this.#wake())
    this.#scheduler = new Scheduler(settings, this.#blocks, sequence => void this.#fetch(sequence))
    backEnd.allocate(blocks, blockTokens)
  }

  get model() {
    return this.#backEnd.model
  }

  get tokenizer() {
    return this.#backEnd.tokenizer
  }

  generate(request: Generation, events: GenerationEvents): RunningGeneration {
    const sequence = new Sequence(request, events, this.#backEnd.tokenizer.stream(request.promptIds))
    this.#alive.add(sequence)
    // Report the end later even if it is already known: the caller has no handle yet.
    queueMicrotask(() => void this.#prepare(sequence))
    return {
      abort: (reason = 'gone') => {
        if (sequence.state === 'ended') return
        if (reason === 'stop') this.#finish(sequence, 'stop')
        else this.#end(sequence, { kind: 'aborted' })
      },
    }
  }

  stats(): EngineStats {
    const { running, fetching, preemptions, prefixQueries, prefixHits } = this.#scheduler
    const { count, free, cached } = this.#blocks
    return {
      running: running.length,
      waiting: this.#alive.size - running.length,
      fetching: fetching.size,
      blocks: count,
      blocksFree: free,
      blocksCached: cached,
      blocksKept: this.#leases.blocks,
      leases: this.#leases.size,
      kvUsage: 1 - free / count,
      signatureRows: this.#signatures?.used ?? 0,
      signatureBytes: this.#signatures?.bytes ?? 0,
      prefixQueries,
      prefixHits,
      preemptions,
      ...this.#totals.stats(),
      ...this.#lastDecode,
      timing: this.#times.timing(),
    }
  }

  union(): ExpertUnion {
    const { layers, experts } = this.#backEnd.model
    const active = new Uint8Array(layers * experts)
    if (this.#lastDecode.batch > 0) this.#backEnd.union(active)
    return { layers, experts, active }
  }

  resetPrefixCache(): boolean {
    return this.#blocks.reset()
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#clock.cancel()
    for (const sequence of this.#alive) this.#end(sequence, { kind: 'aborted' })
    this.#leases.close()
    await this.#backEnd.close()
  }

  get #lastDecode(): Pick<EngineStats, 'batch' | 'activePerLayer' | 'active'> {
    const last = this.#scheduler.running.length > 0 ? this.#last : undefined
    if (last === undefined || last.batch === 0)
      return { batch: 0, activePerLayer: new Uint16Array(this.model.layers), active: 0 }
    return { ...last, activePerLayer: last.activePerLayer.slice() }
  }

  async #prepare(sequence: Sequence): Promise<void> {
    try {
      const fault = this.#closed
        ? new RequestFault(503, 'The worker is closing.')
        : faultOf(sequence.request, this.settings)
      if (fault !== undefined) throw fault
      const inner = await this.#backEnd.prepare(sequence.request)
      if (sequence.state !== 'preparing') return
      sequence.inner = inner
      this.#scheduler.add(sequence)
      this.#wake()
    } catch (error) {
      this.#fail(sequence, error)
    }
  }

  async #fetch(sequence: Sequence): Promise<void> {
    const remote = sequence.request.remote!
    try {
      if (!(await fetchKv(sequence, remote, this.#backEnd, this.#clock))) return
      this.#scheduler.arrived(sequence, remote.tokens)
      this.#wake()
    } catch (error) {
      this.#fail(sequence, error)
    }
  }

  #wake(): void {
    if (this.#turning || this.#closed) return
    this.#turning = true
    this.#clock.soon(() => this.#turn())
  }

  #turn(): void {
    const work = this.#scheduler.plan()
    if (work.length === 0) {
      this.#turning = false
      this.#times.pause()
      return
    }
    const beganMs = this.#clock.now()
    let result: StepResult
    try {
      result = this.#backEnd.step(
        work.map(item => this.#itemOf(item)),
        this.#signatures,
      )
    } catch (error) {
      for (const { sequence } of work) this.#fail(sequence, error)
      return this.#clock.soon(() => this.#turn())
    }
    const batch = work.reduce((sum, { decode }) => sum + (decode ? 1 : 0), 0)
    this.#last = { batch, activePerLayer: result.activePerLayer, active: result.active }
    const computeMs = this.#clock.now() - beganMs
    this.#clock.at(this.#times.begin(beganMs, result.ms), () => {
      this.#times.end(this.#clock.now(), computeMs)
      this.#totals.step(batch, result.active)
      work.forEach((item, i) => {
        const fault = result.faults?.get(i)
        if (fault === undefined) this.#endWork(item, result.next[i]!)
        else this.#fail(item.sequence, fault)
      })
      if (!this.#closed) this.#clock.soon(() => this.#turn())
    })
  }

  #itemOf({ sequence, from, to, decode }: PlannedWork) {
    const { layers, topK } = this.#backEnd.model
    const { request, ids, length, blocks } = sequence
    return {
      sequence: sequence.inner!,
      request,
      ids,
      length,
      from,
      to,
      blocks,
      decode,
      record: sequence.recordAt(from, to, layers * topK),
    }
  }

  #endWork(work: PlannedWork, next: number): void {
    const { sequence } = work
    if (sequence.state !== 'running') return // aborted while the step ran
    this.#scheduler.done(work)
    this.#totals.work(work)
    if (work.to < sequence.length) return
    sequence.append(next)
    const isEnd = this.#backEnd.tokenizer.endsText(next)
    sequence.events.onToken(next, isEnd ? '' : sequence.text.push(next))
    if (this.#ended(sequence)) return // by onToken
    const { ignoreEos, maxTokens } = sequence.request
    if (isEnd && !ignoreEos) this.#finish(sequence, 'stop')
    else if (sequence.generated >= maxTokens) this.#finish(sequence, 'length')
  }

  #ended({ state }: Sequence): boolean {
    return state === 'ended'
  }

  #finish(sequence: Sequence, reason: 'stop' | 'length'): void {
    const { request, promptLength, generated, cachedTokens } = sequence
    const { keepForDecode, recordDecode } = request
    const known =
      this.#signatures !== undefined && (keepForDecode || recordDecode) && sequence.computed >= promptLength
    const counts = known ? this.#signatures!.sum(sequence.blocks, promptLength) : undefined
    const lease =
      keepForDecode && reason === 'length'
        ? this.#leases.keep(
            sequence.inner!,
            this.#scheduler.removeKeeping(sequence, promptLength),
            promptLength,
          )
        : undefined
    const { layers, topK } = this.#backEnd.model
    const steps = Math.max(0, Math.min(generated, sequence.computed - promptLength))
    const ids = sequence.recorded?.slice(0, steps * layers * topK) ?? new Uint16Array(0)
    this.#end(sequence, {
      kind: 'finished',
      reason,
      promptTokens: promptLength,
      cachedTokens: Math.max(0, Math.min(cachedTokens, promptLength)),
      completionTokens: generated,
      tail: sequence.text.end(),
      counts,
      lease,
      decode: recordDecode ? { steps, ids } : undefined,
    })
  }

  #fail(sequence: Sequence, error: unknown): void {
    if (this.#ended(sequence)) return
    const { status = 500, message } = error as { status?: number; message: string }
    this.#end(sequence, { kind: 'failed', status, message })
  }

  #end(sequence: Sequence, end: GenerationEnd): void {
    this.#scheduler.remove(sequence)
    sequence.stopFetch.abort()
    this.#alive.delete(sequence)
    this.#totals.end(end)
    // Another request may be waiting for its blocks.
    this.#wake()
    sequence.events.onEnd(end)
  }
}
